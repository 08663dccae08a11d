import { z } from 'zod'
import { secondTime } from './common.ts'

const count = z.int().min(0)

const sample = {
  at: secondTime.meta({ description: 'When it was measured' }),
  cpuPercent: z.number().min(0).meta({
    description: 'Processor time since the sample before, in percent of one processor: two in full are 200',
  }),
  memoryBytes: count.meta({
    description: 'Memory of its processes, in bytes; without the cache of files, which the kernel takes back',
  }),
  diskBytes: count.nullable().meta({
    description:
      'What it has written to its disk and not removed, in bytes; the checkpoint that it was started from is not ' +
      'counted. `null` while unknown, at most in its first minute',
  }),
  networkReceivedBytes: count.meta({
    description: 'What it has received since it was last started or woken, in bytes',
  }),
  networkSentBytes: count.meta({ description: 'What it has sent since it was last started or woken, in bytes' }),
}

export const metrics = z
  .object({
    now: z
      .object({
        ...sample,
        cpuCount: z.number().meta({ description: 'Processors that it may use' }),
        memoryLimitBytes: count.meta({ description: 'Memory that it may use, in bytes' }),
        diskLimitBytes: count.meta({ description: 'Disk that it may use, in bytes' }),
        processCount: count.meta({ description: 'Processes in it, the guest included' }),
      })
      .nullable()
      .meta({ description: 'What it uses at this moment; `null` while it does not run' }),
    samples: z
      .array(z.object(sample))
      .meta({ description: 'Each 15 seconds of the last hour in which it ran, the oldest first; at most 240' }),
  })
  .meta({ id: 'SandboxMetrics' })
