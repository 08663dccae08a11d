import { z } from 'zod'
import { secondTime } from './common.ts'

const count = z.int().min(0)

export const host = z
  .object({
    version: z.string().meta({ description: 'Version of Atoll' }),
    kernel: z.string().meta({ description: 'Release of the machine’s kernel' }),
    runtime: z.string().meta({ description: 'What runs sandboxes, such as `runc`' }),
    startedAt: secondTime.meta({ description: 'When this server started' }),
    capacity: z
      .object({
        cpuCount: count.meta({ description: 'Processors that the server may use' }),
        memoryBytes: count.meta({ description: 'Memory of the machine, in bytes' }),
        memoryAvailableBytes: count.meta({ description: 'Memory that programs can still take without swap, in bytes' }),
        diskBytes: count.meta({ description: 'Size of the disk pool of sandboxes and checkpoints, in bytes' }),
        diskAvailableBytes: count.meta({
          description:
            'What can still be written to the pool, in bytes; less than its free space where the disk below it is fuller',
        }),
        runningSandboxes: count.meta({ description: 'Sandboxes that run, of all organisations' }),
        warmSandboxes: count.meta({ description: 'Started sandboxes that wait for an owner' }),
      })
      .meta({ description: 'What the machine has, and what is left of it, now' }),
    checks: z
      .array(
        z.object({
          name: z.string().meta({ description: 'What was checked, by the name that `npm run doctor` gives it' }),
          status: z
            .enum(['works', 'missing', 'fails'])
            .meta({ description: '`missing`: not installed or not offered by the machine' }),
          detail: z.string().meta({ description: 'A version, a path or a reason, with advice where it does not work' }),
        }),
      )
      .meta({
        description: 'The checks of `npm run doctor` that start no sandbox; `npm run doctor` tries the rest',
      }),
    checkedAt: secondTime.meta({ description: 'When the checks ended; they run again after ten minutes' }),
  })
  .meta({ id: 'Host' })
