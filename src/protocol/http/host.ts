import { z } from 'zod'
import { at } from './examples.ts'
import { secondTime } from './common.ts'

const count = z.int().min(0)

export const hostQuery = z.object({
  fresh: z
    .enum(['true', 'false'])
    .optional()
    .describe('`true`: runs the checks again, unless they ended in the last ten seconds'),
})

export const host = z
  .object({
    version: z.string().describe('Version of Atoll'),
    kernel: z.string().describe('Release of the machine’s kernel'),
    runtime: z.string().describe('What runs sandboxes, such as `runc`'),
    startedAt: secondTime.describe('When this server started'),
    capacity: z
      .object({
        cpuCount: count.describe('Processors that the server may use'),
        memoryBytes: count.describe('Memory of the machine, in bytes'),
        memoryAvailableBytes: count.describe('Memory that programs can still take without swap, in bytes'),
        diskBytes: count.describe('Size of the disk pool of sandboxes and checkpoints, in bytes'),
        diskAvailableBytes: count.describe(
          'What can still be written to the pool, in bytes; less than its free space where the disk below it is fuller',
        ),
        runningSandboxes: count.describe('Sandboxes that run, of all organisations'),
        warmSandboxes: count.describe('Started sandboxes that wait for an owner'),
      })
      .describe('What the machine has, and what is left of it, now'),
    checks: z
      .array(
        z.object({
          name: z.string().describe('What was checked, by the name that `npm run doctor` gives it'),
          status: z
            .enum(['works', 'missing', 'fails'])
            .describe('`missing`: not installed or not offered by the machine'),
          detail: z.string().describe('A version, a path or a reason, with advice where it does not work'),
        }),
      )
      .describe('The checks of `npm run doctor` that start no sandbox; `npm run doctor` tries the rest'),
    checkedAt: secondTime.describe('When the checks ended; they run again after ten minutes'),
  })
  .meta({
    id: 'Host',
    examples: [
      {
        version: '0.1.0',
        kernel: '6.12.43',
        runtime: 'runc',
        startedAt: at.second,
        capacity: {
          cpuCount: 8,
          memoryBytes: 33_554_432_000,
          memoryAvailableBytes: 25_165_824_000,
          diskBytes: 107_374_182_400,
          diskAvailableBytes: 96_636_764_160,
          runningSandboxes: 3,
          warmSandboxes: 2,
        },
        checks: [{ name: 'runc', status: 'works', detail: '1.3.0' }],
        checkedAt: at.second,
      },
    ],
  })

const quarantined = z
  .object({
    id: z.string().describe('Id of the sandbox or checkpoint'),
    kind: z.enum(['sandbox', 'checkpoint']).describe('What it is'),
    why: z.string().describe('Why the server holds it back, in words'),
    sizeBytes: count.nullable().describe('Of a checkpoint, in bytes; `null` where it is not known'),
    since: secondTime.describe('When it was moved there'),
    removedAt: secondTime.nullable().describe('When it will be removed; `null`: never'),
  })
  .meta({ id: 'Quarantined' })

export const quarantine = z
  .object({
    count: count.describe('How many there are'),
    items: z.array(quarantined).max(1000).describe('The oldest ones'),
  })
  .meta({
    id: 'Quarantine',
    examples: [
      {
        count: 1,
        items: [
          {
            ...{
              id: 'cp-9d2f6h1j4k7m3n8b',
              kind: 'checkpoint',
              why: 'the database does not know it',
              sizeBytes: 1_048_576,
            },
            ...{ since: at.second, removedAt: null },
          },
        ],
      },
    ],
  })
