import { z } from 'zod'
import { envs, notBuilt, sandboxError, secondTime, timeout } from './common.ts'

export const previewAuth = z.object({
  scheme: z.literal('bearer').default('bearer'),
  token: z.string().optional().meta({ description: '`auto` (default), or 16 and more characters' }),
})

export const createSandbox = z.object({
  templateID: z.string().min(1).default('base'),
  timeout: timeout.optional(),
  cpuCount: z.int().positive().optional(),
  memoryMB: z.int().positive().optional(),
  diskMB: z.int().positive().optional(),
  envs: envs.optional(),
  metadata: z.record(z.string(), z.string()).optional(),
  previewAuth: previewAuth.optional(),
  image: notBuilt,
  snapshot: notBuilt,
  secretStore: notBuilt,
  webhooks: notBuilt,
})

export const status = z.enum(['creating', 'running', 'hibernated', 'stopped', 'error'])

const startFields = {
  sandboxID: z.string(),
  status,
  region: z.string(),
  workerID: z.string(),
  sandboxDomain: z
    .string()
    .meta({ description: 'Host under which previews answer: `<sandboxID>-p<port>.<sandboxDomain>`' }),
  memoryMB: z.int(),
  cpuCount: z.number(),
}

export const startResult = z
  .object({ ...startFields, previewAuthToken: z.string().optional().meta({ description: 'Shown this once' }) })
  .meta({ id: 'StartResult' })

export const sandbox = z
  .object({
    ...startFields,
    templateID: z.string(),
    timeout: z.int(),
    metadata: z.record(z.string(), z.string()),
    tags: z.record(z.string(), z.string()),
    tagsLastUpdatedAt: secondTime.nullable(),
    startedAt: secondTime,
    endAt: secondTime
      .nullable()
      .meta({ description: 'When the idle timeout runs out as things stand; null when never' }),
    reason: z.enum(['oom', 'disk_full', 'runtime_failed', 'host_lost', 'patch_failed']).optional(),
    reasonMessage: z.string().optional(),
  })
  .meta({ id: 'Sandbox' })

export const listSandboxesQuery = z.object({
  status: status.optional(),
  limit: z.coerce.number().int().min(1).max(1000).optional(),
  cursor: z.string().optional(),
})

export const setTimeoutBody = z.object({ timeout })
export const wakeBody = z.object({ timeout: timeout.optional() })
export const hibernated = z
  .object({ sandboxID: z.string(), status: z.literal('hibernated'), sizeBytes: z.number() })
  .meta({ id: 'Hibernated' })

export const scaleBody = z.object({ memoryMB: z.int().positive() })
export const scaled = z
  .object({ sandboxID: z.string(), memoryMB: z.int(), cpuPercent: z.number().meta({ description: '100 is one CPU' }) })
  .meta({ id: 'Scaled' })

export const fromCheckpoint = z.object({
  timeout: timeout.optional(),
  envs: envs.optional(),
  memoryMB: z.int().positive().optional(),
  count: z.int().min(1).max(100).optional().meta({ description: 'Starts this many and answers `{sandboxes}`' }),
  secretStore: notBuilt,
})

export const startedFromCheckpoint = z.union([
  startResult,
  z.object({ sandboxes: z.array(z.union([startResult, sandboxError])) }).meta({ id: 'StartResults' }),
])

const tagMap = z.record(z.string(), z.string())
export const putTags = tagMap
export const tags = z.object({ tags: tagMap, tagsLastUpdatedAt: secondTime.nullable() }).meta({ id: 'Tags' })
export const tagKeys = z
  .object({ keys: z.array(z.object({ key: z.string(), sandboxCount: z.int(), valueCount: z.int() })) })
  .meta({ id: 'TagKeys' })
