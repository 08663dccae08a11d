import { z } from 'zod'
import { manifest } from './images.ts'
import { envs, notBuilt, sandboxError, secondTime, timeout, user } from './common.ts'
import { mountedVolumes, mounts } from './volumes.ts'

export const previewAuth = z.object({
  scheme: z.literal('bearer').default('bearer').meta({ description: 'The token is sent as `Authorization: Bearer`' }),
  token: z.string().optional().meta({ description: '`auto` (default), or 16 and more characters' }),
})

export const createSandbox = z.object({
  templateID: z.string().min(1).default('base').meta({ description: 'Name of an image' }),
  timeout: timeout.optional(),
  cpuCount: z
    .int()
    .positive()
    .optional()
    .meta({ description: 'CPUs; `nproc` inside shows as many, or all of the host' }),
  memoryMB: z.int().positive().optional().meta({ description: 'Memory in MiB' }),
  diskMB: z.int().positive().optional().meta({ description: 'Disk in MiB' }),
  envs: envs.optional(),
  user: user
    .optional()
    .meta({ description: 'Who runs commands and owns new files where nothing else is said. Default root' }),
  metadata: z
    .record(z.string(), z.string())
    .optional()
    .meta({ description: 'Your own keys and values, shown with the sandbox' }),
  previewAuth: previewAuth.optional().meta({ description: 'Demands a token of all previews of the sandbox' }),
  image: manifest.nullish().meta({ description: 'Builds this image first, unless it is there' }),
  snapshot: z
    .string()
    .max(128)
    .nullish()
    .meta({ description: 'Starts from the image of this name; goes before `image`' }),
  volumes: mounts.optional(),
  secretStore: notBuilt,
  webhooks: notBuilt,
})

export const status = z.enum(['creating', 'running', 'hibernated', 'stopped', 'error'])

const startFields = {
  sandboxID: z.string().meta({ description: 'Id of the sandbox, `sb-…`' }),
  status: status.meta({ description: 'Its state' }),
  region: z.string().meta({ description: 'Region of the server' }),
  workerID: z.string().meta({ description: 'The host that runs it' }),
  sandboxDomain: z
    .string()
    .meta({ description: 'Host under which previews answer: `<sandboxID>-p<port>.<sandboxDomain>`' }),
  memoryMB: z.int().meta({ description: 'Memory in MiB' }),
  cpuCount: z.number().meta({ description: 'CPUs' }),
}

export const startResult = z
  .object({
    ...startFields,
    previewAuthToken: z.string().optional().meta({ description: 'Shown this once' }),
    fromCheckpointId: z.string().optional().meta({ description: 'The checkpoint that it was started from' }),
  })
  .meta({ id: 'StartResult' })

export const sandbox = z
  .object({
    ...startFields,
    templateID: z.string().meta({ description: 'Image that it was started from' }),
    timeout: z.int().meta({ description: 'Rolling idle timeout in seconds; 0 means never' }),
    metadata: z.record(z.string(), z.string()).meta({ description: 'Keys and values given at its creation' }),
    user: z.string().optional().meta({ description: 'Who runs commands and owns new files; absent: root' }),
    tags: z.record(z.string(), z.string()).meta({ description: 'Its tags' }),
    tagsLastUpdatedAt: secondTime.nullable().meta({ description: 'When its tags were last replaced; null: never' }),
    startedAt: secondTime.meta({ description: 'When it last started' }),
    endAt: secondTime
      .nullable()
      .meta({ description: 'When the idle timeout runs out as things stand; null when never' }),
    volumes: mountedVolumes.meta({ description: 'The volumes that it has mounted' }),
    reason: z
      .enum(['oom', 'disk_full', 'runtime_failed', 'host_lost', 'patch_failed', 'memory_not_restorable', 'hook_failed'])
      .optional()
      .meta({ description: 'Why it stopped by itself, or what failed in its last start' }),
    reasonMessage: z.string().optional().meta({ description: 'The same in words' }),
  })
  .meta({ id: 'Sandbox' })

export const listSandboxesQuery = z.object({
  status: status.optional().meta({ description: 'Only those in this state' }),
  limit: z.coerce
    .number()
    .int()
    .min(1)
    .max(1000)
    .optional()
    .meta({ description: 'Most sandboxes on a page, default 1000' }),
  cursor: z.string().optional().meta({ description: 'The page that `X-Next-Cursor` named' }),
})

export const setTimeoutBody = z.object({ timeout })
export const wakeBody = z.object({
  timeout: timeout.optional(),
  memory: z
    .boolean()
    .optional()
    .meta({
      description:
        '`false`: starts a hibernated sandbox from its disk as it is, and keeps its memory with a copy of that disk as a full ' +
        'checkpoint `before-cold-wake-<time>`. `true`: tries memory again that could not be restored. Without it, such memory is refused',
    }),
})
export const hibernated = z
  .object({
    sandboxID: z.string().meta({ description: 'Id of the sandbox' }),
    status: z.literal('hibernated').meta({ description: 'Its state now' }),
    sizeBytes: z.number().meta({ description: 'Saved memory in bytes' }),
  })
  .meta({ id: 'Hibernated' })

export const fromCheckpoint = z.object({
  timeout: timeout.optional(),
  envs: envs.optional(),
  user: user.optional().meta({ description: 'As in a new sandbox. Default that of the checkpoint' }),
  memoryMB: z.int().positive().optional().meta({ description: 'Memory in MiB; default that of the checkpoint' }),
  volumes: mounts.optional().meta({
    description:
      'In place of the volumes of the checkpoint; for a full one at the same paths, and as writable. Without it, they ' +
      'are mounted again, which is refused while another sandbox writes one that the source wrote',
  }),
  count: z.int().min(1).max(100).optional().meta({ description: 'Starts this many and answers `{sandboxes}`' }),
  secretStore: notBuilt,
})

export const startedFromCheckpoint = z.union([
  startResult,
  z
    .object({
      sandboxes: z
        .array(z.union([startResult, sandboxError]))
        .meta({ description: 'For each start the sandbox, or the error' }),
    })
    .meta({ id: 'StartResults' }),
])

const tagMap = z.record(z.string(), z.string())
export const putTags = tagMap
export const tags = z
  .object({
    tags: tagMap.meta({ description: 'All of them' }),
    tagsLastUpdatedAt: secondTime.nullable().meta({ description: 'When they were last replaced; null: never' }),
  })
  .meta({ id: 'Tags' })
export const tagKeys = z
  .object({
    keys: z
      .array(
        z.object({
          key: z.string().meta({ description: 'The key' }),
          sandboxCount: z.int().meta({ description: 'Sandboxes with this key' }),
          valueCount: z.int().meta({ description: 'Different values of it' }),
        }),
      )
      .meta({ description: 'By name' }),
  })
  .meta({ id: 'TagKeys' })
