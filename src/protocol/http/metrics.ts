import { z } from 'zod'
import { at, ids } from './examples.ts'
import { milliTime, secondTime } from './common.ts'

const count = z.int().min(0)

const sample = {
  at: secondTime.describe('When it was measured'),
  cpuPercent: z
    .number()
    .min(0)
    .describe('Processor time since the sample before, in percent of one processor: two in full are 200'),
  memoryBytes: count.describe(
    'Memory of its processes, in bytes; without the cache of files, which the kernel takes back',
  ),
  diskBytes: count
    .nullable()
    .describe(
      'What it has written to its disk and not removed, in bytes; the checkpoint that it was started from is not ' +
        'counted. `null` while unknown, at most in its first minute',
    ),
  networkReceivedBytes: count.describe('What it has received since it was last started or woken, in bytes'),
  networkSentBytes: count.describe('What it has sent since it was last started or woken, in bytes'),
}

const shown = {
  at: at.second,
  cpuPercent: 12.5,
  memoryBytes: 52_428_800,
  diskBytes: 1_048_576,
  networkReceivedBytes: 2048,
  networkSentBytes: 1024,
}

export const metrics = z
  .object({
    now: z
      .object({
        ...sample,
        cpuCount: z.number().describe('Processors that it may use'),
        memoryLimitBytes: count.describe('Memory that it may use, in bytes'),
        diskLimitBytes: count.describe('Disk that it may use, in bytes'),
        processCount: count.describe('Processes in it, the guest included'),
      })
      .nullable()
      .describe('What it uses at this moment; `null` while it does not run'),
    samples: z
      .array(z.object(sample))
      .describe('Each 15 seconds of the last hour in which it ran, the oldest first; at most 240'),
  })
  .meta({
    id: 'SandboxMetrics',
    examples: [
      {
        now: {
          ...shown,
          cpuCount: 1,
          memoryLimitBytes: 1_073_741_824,
          diskLimitBytes: 10_737_418_240,
          processCount: 3,
        },
        samples: [shown],
      },
    ],
  })

/** Sandboxes of one stream. */
const followedMax = 200

export const followQuery = z.object({
  api_key: z.string().optional().describe('The API key, for clients that cannot set headers'),
  sandbox: z
    .array(z.string().min(1).max(128))
    .min(1)
    .max(followedMax)
    .meta({ description: 'Id of a sandbox. Repeated, all of them', examples: [[ids.sandbox]] }),
})

/** A line of the stream. */
export const followedSample = z
  .object({
    sandboxId: z.string().describe('The sandbox'),
    at: milliTime.describe('When it was measured'),
    cpuPercent: sample.cpuPercent,
    memoryBytes: sample.memoryBytes,
    memoryLimitBytes: count.describe('Memory that it may use, in bytes'),
  })
  .meta({
    id: 'MetricsSample',
    examples: [
      {
        sandboxId: ids.sandbox,
        at: at.millisecond,
        cpuPercent: 12.5,
        memoryBytes: 52_428_800,
        memoryLimitBytes: 1_073_741_824,
      },
    ],
  })
