import { z } from 'zod'
import { milliTime, secondTime } from './common.ts'
import { at, ids } from './examples.ts'

const time = (description: string) =>
  z
    .string()
    .regex(/^\d{4}-\d{2}-\d{2}(?:T.+)?$/, 'must be YYYY-MM-DD or RFC 3339')
    .optional()
    .describe(description)

export const usageQuery = z.object({
  groupBy: z
    .string()
    .regex(/^(?:sandbox|session|key|tag:.+)$/, 'must be sandbox, session, key or tag:<key>')
    .meta({ examples: ['sandbox'] })
    .describe('`sandbox`, `tag:<key>`, `key`, or `session` for tokens and money'),
  from: time('Default: thirty days ago. At most 90 days before `to`'),
  to: time('Default: now'),
  sort: z.enum(['-memoryGbSeconds', '-diskOverageGbSeconds']).optional().describe('Default `-memoryGbSeconds`'),
  limit: z.coerce.number().int().min(1).max(500).optional().describe('Items of a page; default 50'),
  cursor: z.string().optional().describe('`nextCursor` of the page before'),
  format: z.enum(['json', 'csv']).optional().describe('`csv`: as with `Accept: text/csv`'),
})

export const sandboxUsageQuery = z.object({
  from: time('Default: an hour ago. At most 30 days before `to`'),
  to: time('Default: now'),
})

const totals = {
  memoryGbSeconds: z.number().describe('GiB of memory that was allowed, times seconds'),
  diskOverageGbSeconds: z.number().describe('GiB of disk beyond 20, times seconds in which it ran'),
  diskGbSeconds: z.number().describe('GiB of disk, times seconds in which it ran'),
  cpuAllocatedSeconds: z.number().describe('CPUs that were allowed, times seconds'),
  cpuUsedSeconds: z.number().describe('Seconds of processor time that were used'),
  egressBytes: z.number().describe('Bytes that were sent'),
  ingressBytes: z.number().describe('Bytes that were received'),
  computeUsd: z.number().describe("USD by the operator's prices"),
}
const usageTotals = z.object(totals)

const sandboxItem = z.object({
  sandboxId: z.string().describe('The sandbox'),
  alias: z.string().optional().describe('Its name'),
  status: z.string().optional().describe('Its state'),
  tags: z.record(z.string(), z.string()).describe('Its tags now'),
  tagsLastUpdatedAt: secondTime.nullable().describe('When they were set'),
  keyId: z.string().optional().describe('The key that made it'),
  ...totals,
})
const tagItem = z.object({
  tagKey: z.string().describe('The key'),
  tagValue: z.string().describe('The value'),
  sandboxCount: z.int().describe('Sandboxes that have it'),
  ...totals,
})
const keyItem = z.object({
  keyId: z.string().nullable().describe('The key that made them; `null`: none'),
  sandboxCount: z.int().describe('Sandboxes that it made'),
  ...totals,
})
const sessionItem = z.object({
  sessionId: z.string().describe('The session'),
  keyId: z.string().optional().describe('The key that made it'),
  model: z.string().describe('Its model'),
  inputTokens: z.int().describe('Tokens that the model has read'),
  outputTokens: z.int().describe('Tokens that it has written'),
  cacheReadTokens: z.int().describe('Of those read, from a cache'),
  cacheWriteTokens: z.int().describe('Of those read, into a cache'),
  modelUsd: z.number().describe('USD of its calls'),
  isCostKnown: z.boolean().describe('Whether all of its calls had a price'),
})

export const usage = z
  .object({
    from: milliTime.describe('Begin of the window'),
    to: milliTime.describe('Its end'),
    groupBy: z.string().describe('As asked for'),
    total: usageTotals.describe('All that match the filters, on whatever page'),
    items: z.array(z.union([sandboxItem, tagItem, keyItem, sessionItem])).describe('By `sort`, equal ones by id'),
    untagged: z
      .object({ ...totals, sandboxCount: z.int().describe('Sandboxes without the key') })
      .optional()
      .describe('Of sandboxes without the tag'),
    nextCursor: z.string().nullable().describe('For the next page; `null` on the last'),
  })
  .meta({
    id: 'Usage',
    examples: [
      {
        ...{ from: at.millisecond, to: at.millisecond, groupBy: 'sandbox', items: [], nextCursor: null },
        total: {
          ...{ memoryGbSeconds: 3600, diskOverageGbSeconds: 0, diskGbSeconds: 36_000, cpuAllocatedSeconds: 3600 },
          ...{ cpuUsedSeconds: 12.5, egressBytes: 1024, ingressBytes: 2048, computeUsd: 0 },
        },
      },
    ],
  })

export const sandboxUsage = z
  .object({
    sandboxId: z.string().describe('The sandbox'),
    alias: z.string().optional().describe('Its name'),
    from: milliTime.describe('Begin of the window'),
    to: milliTime.describe('Its end'),
    totals: z
      .object({
        memoryAllocatedGbSeconds: z.number().describe('Sum of the points'),
        memoryUsedGbSeconds: z.number().describe('Sum of the points'),
        uptimeSeconds: z.int().describe('Sum of the points'),
        memoryAllocatedPeakMb: z.int().describe('The most that it was allowed'),
        memoryUsedPeakMb: z.int().describe('The most that it used'),
      })
      .describe('Of the window'),
    points: z
      .array(
        z.object({
          ts: milliTime.describe('Start of the minute'),
          memoryAllocatedGbSeconds: z.number().describe('GiB that it was allowed, times seconds'),
          memoryUsedGbSeconds: z.number().describe('GiB that it used, times seconds'),
          uptimeSeconds: z.int().describe('Seconds in which it ran'),
          allocatedMemoryMb: z.int().describe('MiB that it was allowed, on average'),
          usedMemoryMbAvg: z.int().describe('MiB that it used, on average'),
          usedMemoryMbPeak: z.int().describe('MiB that it used at most'),
        }),
      )
      .describe('One for each minute (UTC)'),
  })
  .meta({
    id: 'SandboxUsage',
    examples: [
      {
        ...{ sandboxId: ids.sandbox, from: at.millisecond, to: at.millisecond, points: [] },
        totals: {
          ...{ memoryAllocatedGbSeconds: 0, memoryUsedGbSeconds: 0, uptimeSeconds: 0 },
          ...{ memoryAllocatedPeakMb: 0, memoryUsedPeakMb: 0 },
        },
      },
    ],
  })
