import { z } from 'zod'
import { envs, secondTime } from './common.ts'
import { checkpointVolumes } from './volumes.ts'

export const kind = z.enum(['full', 'disk_only'])

export const createCheckpoint = z.object({
  name: z.string().max(128).regex(/\S/, 'must not be blank').meta({ description: 'A name of your own; not blank' }),
  kind: kind
    .optional()
    .meta({ description: '`full` keeps memory and processes, `disk_only` the disk alone. Default `full`' }),
  retentionPolicy: z
    .object({
      mode: z.literal('delete_oldest').meta({ description: 'The oldest is deleted first' }),
      maxCount: z.int().min(1).meta({ description: 'Checkpoints of its kind that stay' }),
    })
    .optional()
    .meta({ description: 'Once it is ready, deletes the oldest of its kind until `maxCount` are left' }),
  promoteToFull: z.boolean().optional().meta({ description: 'Accepted, without effect' }),
})

export const checkpoint = z
  .object({
    id: z.string().meta({ description: 'Id of the checkpoint, `cp-…`' }),
    sandboxId: z.string().meta({ description: 'The sandbox that it was made of' }),
    orgId: z.string().meta({ description: 'The organisation that owns it' }),
    name: z.string().meta({ description: 'Name given at its creation' }),
    kind: kind.meta({ description: 'What it keeps: `full` memory and disk, `disk_only` the disk' }),
    status: z
      .enum(['processing', 'ready', 'failed'])
      .meta({ description: '`processing` until it can be started from; `failed` has `error`' }),
    sizeBytes: z.number().meta({ description: 'Space on disk, in bytes' }),
    sandboxConfig: z
      .object({
        templateID: z.string().meta({ description: 'Image of the sandbox' }),
        cpuCount: z.number().meta({ description: 'CPUs of the sandbox' }),
        memoryMB: z.int().meta({ description: 'Memory of the sandbox in MiB' }),
        diskMB: z.int().meta({ description: 'Disk of the sandbox in MiB' }),
        envs,
      })
      .meta({ description: 'What a sandbox started from it has' }),
    volumes: checkpointVolumes.meta({ description: 'The volumes of the sandbox, which it does not contain' }),
    createdAt: secondTime.meta({ description: 'When it was made' }),
    public: z.boolean().optional().meta({ description: 'Every organisation may start sandboxes from it' }),
    error: z.string().optional().meta({ description: 'Why it failed' }),
  })
  .meta({ id: 'Checkpoint' })

/** When each runs is the table of `sandbox/patch.ts`. */
export const strategy = z.enum(['on_wake', 'on_resume'])

export const createPatch = z.object({
  script: z.string().min(1).meta({ description: 'Run as root with bash; at most 256 KiB' }),
  description: z.string().max(4096).optional().meta({ description: 'A note for people' }),
  strategy: strategy.default('on_wake').meta({
    description:
      'When it runs: `on_wake` at each start from the checkpoint, `on_resume` also at each wake from hibernation',
  }),
})

export const patch = z
  .object({
    id: z.string().meta({ description: 'Id of the patch, `pa-…`' }),
    checkpointId: z.string().meta({ description: 'The checkpoint that it is attached to' }),
    script: z.string().meta({ description: 'The script, run as root with bash' }),
    description: z.string().meta({ description: 'The note given at its creation' }),
    strategy: strategy.meta({ description: 'When it runs' }),
    sequence: z.int().meta({ description: 'Patches of a checkpoint run in this order' }),
    createdAt: secondTime.meta({ description: 'When it was attached' }),
  })
  .meta({ id: 'Patch' })

export const createdPatch = z.object({ patch: patch.meta({ description: 'The patch' }) })
