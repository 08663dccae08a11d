import { z } from 'zod'
import { at, ids, showExample } from './examples.ts'
import { envs, expiresInSeconds, pageQuery, secondTime } from './common.ts'
import { checkpointVolumes } from './volumes.ts'

export const kind = z.enum(['full', 'disk_only'])

export const createCheckpoint = z.object({
  name: z.string().max(128).regex(/\S/, 'must not be blank').describe('A name of your own; not blank'),
  kind: kind.optional().describe('`full` keeps memory and processes, `disk_only` the disk alone. Default `full`'),
  expiresInSeconds: expiresInSeconds
    .optional()
    .describe('Seconds after which it is deleted by itself, unless something needs it then. Default: never'),
  retentionPolicy: z
    .strictObject({
      mode: z.literal('delete_oldest').describe('The oldest is deleted first'),
      maxCount: z.int().min(1).describe('Checkpoints of its kind that stay'),
    })
    .optional()
    .describe('Once it is ready, deletes the oldest of its kind until `maxCount` are left'),
  promoteToFull: z.boolean().optional().describe('Accepted, without effect'),
})

export const origin = z
  .enum(['client', 'image', 'fork', 'wake', 'turn'])
  .describe(
    'What it was made for: you (`client`), an image, the fork of a session, a wake without memory (`wake`), or a turn of a session',
  )

const checkpointFields = z.object({
  id: z.string().describe('Id of the checkpoint, `cp-…`'),
  sandboxId: z.string().describe('The sandbox that it was made of'),
  orgId: z.string().describe('The organisation that owns it'),
  name: z.string().describe('Name given at its creation'),
  kind: kind.describe('What it keeps: `full` memory and disk, `disk_only` the disk'),
  status: z
    .enum(['processing', 'ready', 'failed'])
    .describe('`processing` until it can be started from; `failed` has `error`'),
  sizeBytes: z.number().describe('Space on disk, in bytes'),
  sandboxConfig: z
    .object({
      templateID: z.string().describe('Image of the sandbox'),
      cpuCount: z.number().describe('CPUs of the sandbox'),
      memoryMB: z.int().describe('Memory of the sandbox in MiB'),
      diskMB: z.int().describe('Disk of the sandbox in MiB'),
      envs,
    })
    .describe('What a sandbox started from it has'),
  volumes: checkpointVolumes.describe('The volumes of the sandbox, which it does not contain'),
  origin,
  createdAt: secondTime.describe('When it was made'),
  public: z.boolean().optional().describe('Every organisation may start sandboxes from it'),
  expiresAt: secondTime.optional().describe('When it is deleted by itself; absent: never'),
  error: z.string().optional().describe('Why it failed'),
})
const example = {
  id: ids.checkpoint,
  sandboxId: ids.sandbox,
  orgId: ids.org,
  name: 'before-upgrade',
  kind: 'disk_only',
  status: 'ready',
  sizeBytes: 4096,
  sandboxConfig: { templateID: 'base', cpuCount: 1, memoryMB: 1024, diskMB: 10_240, envs: {} },
  volumes: [],
  origin: 'client',
  createdAt: at.second,
}
showExample(createCheckpoint, { name: 'before-upgrade', kind: 'disk_only' })

export const checkpoint = checkpointFields.meta({ id: 'Checkpoint', examples: [example] })

export const owner = z
  .enum(['client', 'image', 'session', 'wake'])
  .describe('Who needs it: you (`client`), an image, a session, or you after a wake without memory (`wake`)')

export const listedCheckpoint = checkpointFields
  .extend({
    owner,
    sandboxName: z.string().optional().describe('Name of its sandbox, if that has one and is not stopped'),
    dependents: z
      .object({
        sandboxes: z.int().describe('Sandboxes that were started from it, and are not stopped'),
        sessions: z.int().describe('Sessions that began with it, and have not ended'),
        images: z.int().describe('Images and layers of images that consist of it'),
        checkpoints: z.int().describe('Checkpoints of those sandboxes'),
      })
      .describe('What makes use of it. Sandboxes run on without it, but for its `on_resume` patches'),
  })
  .meta({
    id: 'ListedCheckpoint',
    examples: [{ ...example, owner: 'client', dependents: { sandboxes: 0, sessions: 0, images: 0, checkpoints: 0 } }],
  })

export const listCheckpointsQuery = z.object({
  sandbox: z.string().optional().describe('Only those of this sandbox, by id or name'),
  owner: owner.optional().describe('Only those of this owner'),
  origin: origin.optional().describe('Only those of this origin. Absent: all but those of turns'),
  ...pageQuery,
})

export const checkpointsOfSandboxQuery = z.object({
  origin: origin.optional().describe('Only those of this origin. Absent: all but those of turns'),
})

export const updateCheckpoint = z.object({
  expiresInSeconds: expiresInSeconds.nullable().describe('Seconds from now after which it is deleted; null: never'),
})
showExample(updateCheckpoint, { expiresInSeconds: 86_400 })

/** When each runs is the table of `sandbox/patch.ts`. */
export const strategy = z.enum(['on_wake', 'on_resume'])

export const createPatch = z.object({
  script: z.string().min(1).describe('Run as root with bash; at most 256 KiB'),
  description: z.string().max(4096).optional().describe('A note for people'),
  strategy: strategy
    .default('on_wake')
    .describe(
      'When it runs: `on_wake` at each start from the checkpoint, `on_resume` also at each wake from hibernation',
    ),
})
showExample(createPatch, { script: 'date > /workspace/started', description: 'Notes the start' })

export const patch = z
  .object({
    id: z.string().describe('Id of the patch, `pa-…`'),
    checkpointId: z.string().describe('The checkpoint that it is attached to'),
    script: z.string().describe('The script, run as root with bash'),
    description: z.string().describe('The note given at its creation'),
    strategy: strategy.describe('When it runs'),
    sequence: z.int().describe('Patches of a checkpoint run in this order'),
    createdAt: secondTime.describe('When it was attached'),
  })
  .meta({
    id: 'Patch',
    examples: [
      {
        id: ids.patch,
        checkpointId: ids.checkpoint,
        script: 'date > /workspace/started',
        description: 'Notes the start',
        strategy: 'on_wake',
        sequence: 1,
        createdAt: at.second,
      },
    ],
  })

export const createdPatch = z.object({ patch: patch.describe('The patch') })
