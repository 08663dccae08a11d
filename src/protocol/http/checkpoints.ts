import { z } from 'zod'
import { envs, secondTime } from './common.ts'

export const kind = z.enum(['full', 'disk_only'])

export const createCheckpoint = z.object({
  name: z.string().max(128).regex(/\S/, 'must not be blank'),
  kind: kind.optional(),
  retentionPolicy: z.object({ mode: z.literal('delete_oldest'), maxCount: z.int().min(1) }).optional(),
  promoteToFull: z.boolean().optional().meta({ description: 'Accepted, without effect' }),
})

export const checkpoint = z
  .object({
    id: z.string(),
    sandboxId: z.string(),
    orgId: z.string(),
    name: z.string(),
    kind,
    status: z.enum(['processing', 'ready', 'failed']),
    sizeBytes: z.number(),
    sandboxConfig: z.object({
      templateID: z.string(),
      cpuCount: z.number(),
      memoryMB: z.int(),
      diskMB: z.int(),
      envs,
    }),
    createdAt: secondTime,
    error: z.string().optional(),
  })
  .meta({ id: 'Checkpoint' })

/** When each runs is the table of `sandbox/patch.ts`. */
export const strategy = z.enum(['on_wake', 'on_resume'])

export const createPatch = z.object({
  script: z.string().min(1).meta({ description: 'Run as root with bash; at most 256 KiB' }),
  description: z.string().max(4096).optional(),
  strategy: strategy.default('on_wake'),
})

export const patch = z
  .object({
    id: z.string(),
    checkpointId: z.string(),
    script: z.string(),
    description: z.string(),
    strategy,
    sequence: z.int(),
    createdAt: secondTime,
  })
  .meta({ id: 'Patch' })

export const createdPatch = z.object({ patch })
