import { z } from 'zod'
import { egressFields } from './egress.ts'
import { inlineWebhooks, registeredWebhooks } from './webhooks.ts'
import { at, ids, showExample } from './examples.ts'
import { manifest } from './images.ts'
import {
  cpuCount,
  diskMB,
  envs,
  maxAgeSeconds,
  memoryMB,
  onIdle,
  pageQuery,
  resourceName,
  sandboxError,
  secondTime,
  timeout,
  user,
} from './common.ts'
import { mountedVolumes, mounts } from './volumes.ts'

export const previewAuth = z.strictObject({
  scheme: z.literal('bearer').default('bearer').describe('The token is sent as `Authorization: Bearer`'),
  token: z.string().optional().describe('`auto` (default), or 16 and more characters'),
})

const sandboxName = resourceName.describe('Serves wherever an id of a sandbox does. Unique while the sandbox lives')
/** Bounds the filters of one list. */
const filtersMax = 20
const filter = z.string().refine((text) => !text.includes('\0'), 'must not contain NUL characters')
const lifetimes = {
  timeout: timeout.optional().describe('Seconds without use after which `onIdle` happens; 0: never. Default 300'),
  onIdle: onIdle
    .optional()
    .describe('`hibernate` keeps it for its next use, which wakes it; `stop` deletes it. Default `hibernate`'),
  maxAgeSeconds: maxAgeSeconds
    .optional()
    .describe('Seconds after its creation at which it is deleted, whatever its state; 0: never. Default 0'),
}

export const createSandbox = z.object({
  name: sandboxName.optional(),
  templateID: z.string().min(1).default('base').describe('Name of an image'),
  ...lifetimes,
  cpuCount: cpuCount
    .optional()
    .meta({ default: 1, description: 'CPUs; `nproc` inside shows as many, or all of the host' }),
  memoryMB: memoryMB.optional().meta({ default: 1024, description: 'Memory in MiB' }),
  diskMB: diskMB.optional().meta({ default: 10_240, description: 'Disk in MiB' }),
  envs: envs.optional(),
  user: user.optional().describe('Who runs commands and owns new files where nothing else is said. Default root'),
  metadata: z.record(z.string(), z.string()).optional().describe('Your own keys and values, shown with the sandbox'),
  previewAuth: previewAuth.optional().describe('Demands a token of all previews of the sandbox'),
  image: manifest.nullish().describe('Builds this image first, unless it is there'),
  snapshot: z.string().max(128).nullish().describe('Starts from the image of this name; goes before `image`'),
  volumes: mounts.optional(),
  ...egressFields,
  webhooks: inlineWebhooks.optional(),
})
showExample(createSandbox, { templateID: 'base', timeout: 600, memoryMB: 2048, envs: { STAGE: 'test' } })

export const deleteSandboxQuery = z.object({
  deleteSecretStore: z
    .string()
    .optional()
    .describe('`true`: the secret store that it named goes too, with its secrets'),
})

export const status = z.enum(['creating', 'running', 'hibernated', 'stopped', 'error'])

const started = {
  sandboxID: ids.sandbox,
  status: 'running',
  region: 'local',
  workerID: 'worker-1',
  sandboxDomain: 'preview.example.com',
  memoryMB: 2048,
  cpuCount: 1,
} as const

const startFields = {
  sandboxID: z.string().describe('Id of the sandbox, `sb-…`'),
  name: z.string().optional().describe('Its name, if it has one'),
  status: status.describe('Its state'),
  region: z.string().describe('Region of the server'),
  workerID: z.string().describe('The host that runs it'),
  sandboxDomain: z.string().describe('Host under which previews answer: `<sandboxID>-p<port>.<sandboxDomain>`'),
  memoryMB: z.int().describe('Memory in MiB'),
  cpuCount: z.number().describe('CPUs'),
}

export const startResult = z
  .object({
    ...startFields,
    previewAuthToken: z.string().optional().describe('Shown this once'),
    fromCheckpointId: z.string().optional().describe('The checkpoint that it was started from'),
    webhooks: registeredWebhooks.optional(),
  })
  .meta({ id: 'StartResult', examples: [started] })

export const sandbox = z
  .object({
    ...startFields,
    templateID: z.string().describe('Image that it was started from'),
    timeout: z.int().describe('Rolling idle timeout in seconds; 0 means never'),
    onIdle,
    maxAgeSeconds,
    metadata: z.record(z.string(), z.string()).describe('Keys and values given at its creation'),
    user: z.string().optional().describe('Who runs commands and owns new files; absent: root'),
    tags: z.record(z.string(), z.string()).describe('Its tags'),
    tagsLastUpdatedAt: secondTime.nullable().describe('When its tags were last replaced; null: never'),
    startedAt: secondTime.describe('When it last started'),
    endAt: secondTime.nullable().describe('When the idle timeout runs out as things stand; null when never'),
    expiresAt: secondTime.nullable().describe('When its maximum age ends it; null when never, and once it is stopped'),
    volumes: mountedVolumes.describe('The volumes that it has mounted'),
    reason: z
      .enum([
        ...['oom', 'disk_full', 'runtime_failed', 'host_lost', 'patch_failed', 'memory_not_restorable', 'hook_failed'],
        ...['expired', 'idle'],
      ] as const)
      .optional()
      .describe(
        'Why it stopped by itself, or what failed in its last start. `expired`: its maximum age; `idle`: its idle timeout',
      ),
    reasonMessage: z.string().optional().describe('The same in words'),
  })
  .meta({
    id: 'Sandbox',
    examples: [
      {
        ...started,
        templateID: 'base',
        timeout: 600,
        metadata: {},
        tags: {},
        tagsLastUpdatedAt: null,
        onIdle: 'hibernate',
        maxAgeSeconds: 0,
        startedAt: at.second,
        endAt: at.second,
        expiresAt: null,
        volumes: [],
      },
    ],
  })

export const listSandboxesQuery = z.object({
  status: status.optional().describe('Only those in this state'),
  name: resourceName.optional().describe('Only the one of this name'),
  metadata: z
    .array(filter.regex(/^[^=]+=/, 'must be key=value'))
    .max(filtersMax)
    .optional()
    .describe('`key=value`: only those created with it. Repeated, all must match'),
  tag: z
    .array(filter.regex(/^[^=]/, 'must be key=value, or key'))
    .max(filtersMax)
    .optional()
    .describe('`key=value`, or `key` for any value: only those that have this tag. Repeated, all must match'),
  ...pageQuery,
})

export const updateSandbox = z.object({
  name: sandboxName.nullish().describe('Another name; `null` takes it away'),
  timeout: timeout.optional(),
  onIdle: onIdle.optional(),
  maxAgeSeconds: maxAgeSeconds.optional(),
})
showExample(updateSandbox, { timeout: 3600, onIdle: 'stop' })
export const setTimeoutBody = z.object({ timeout })
showExample(setTimeoutBody, { timeout: 3600 })
export const wakeBody = z.object({
  timeout: timeout.optional(),
  memory: z
    .boolean()
    .optional()
    .describe(
      '`false`: starts a hibernated sandbox from its disk as it is, and keeps its memory with a copy of that disk as a full ' +
        'checkpoint `before-cold-wake-<time>`. `true`: tries memory again that could not be restored. Without it, such memory is refused',
    ),
})
showExample(wakeBody, { timeout: 600 })
export const hibernated = z
  .object({
    sandboxID: z.string().describe('Id of the sandbox'),
    status: z.literal('hibernated').describe('Its state now'),
    sizeBytes: z.number().describe('Saved memory in bytes'),
  })
  .meta({ id: 'Hibernated', examples: [{ sandboxID: ids.sandbox, status: 'hibernated', sizeBytes: 52_428_800 }] })

export const fromCheckpoint = z.object({
  name: sandboxName.optional().describe('As in a new sandbox; of one sandbox alone'),
  ...lifetimes,
  envs: envs.optional(),
  user: user.optional().describe('As in a new sandbox. Default that of the checkpoint'),
  memoryMB: memoryMB.optional().describe('Memory in MiB; default that of the checkpoint'),
  volumes: mounts
    .optional()
    .describe(
      'In place of the volumes of the checkpoint; for a full one at the same paths, and as writable. Without it, they ' +
        'are mounted again, which is refused while another sandbox writes one that the source wrote',
    ),
  webhooks: inlineWebhooks.optional(),
  count: z.int().min(1).max(100).optional().describe('Starts this many and answers `{sandboxes}`'),
  ...egressFields,
})
showExample(fromCheckpoint, { timeout: 600 })

export const startedFromCheckpoint = z.union([
  startResult,
  z
    .object({
      sandboxes: z.array(z.union([startResult, sandboxError])).describe('For each start the sandbox, or the error'),
    })
    .meta({ id: 'StartResults', examples: [{ sandboxes: [started] }] }),
])

const tagMap = z.record(z.string(), z.string())
export const putTags = tagMap.meta({
  maxProperties: 50,
  propertyNames: { pattern: '^[A-Za-z0-9_.:-]{1,128}$' },
  additionalProperties: { type: 'string', maxLength: 256 },
  examples: [{ team: 'web' }],
})
export const tags = z
  .object({
    tags: tagMap.describe('All of them'),
    tagsLastUpdatedAt: secondTime.nullable().describe('When they were last replaced; null: never'),
  })
  .meta({ id: 'Tags', examples: [{ tags: { team: 'web' }, tagsLastUpdatedAt: at.second }] })
export const tagKeys = z
  .object({
    keys: z
      .array(
        z.object({
          key: z.string().describe('The key'),
          sandboxCount: z.int().describe('Sandboxes with this key'),
          valueCount: z.int().describe('Different values of it'),
        }),
      )
      .describe('By name'),
  })
  .meta({ id: 'TagKeys', examples: [{ keys: [{ key: 'team', sandboxCount: 1, valueCount: 1 }] }] })
