import { z } from 'zod'

const sandboxID = z.string().meta({ description: 'Id of the sandbox' })
const memoryMB = z.int().meta({ description: 'Memory in MiB' })

export const scaleBody = z.object({ memoryMB: z.int().positive().meta({ description: 'Memory in MiB' }) })

export const limitsBody = z.object({
  memoryMB: z.int().min(0).optional().meta({ description: 'Memory in MiB; 0 or absent leaves it' }),
  cpuPercent: z
    .int()
    .min(0)
    .optional()
    .meta({ description: '100 is one CPU, at least 10; 0 or absent leaves it, unless `memoryMB` brings more' }),
})

const sizes = {
  sandboxID,
  memoryMB,
  cpuPercent: z.number().meta({ description: '100 is one CPU' }),
  workerID: z.string().meta({ description: 'The host that runs it' }),
  migrated: z.literal(false).meta({ description: 'It has stayed on its host' }),
  ok: z.literal(true).meta({ description: 'Always true' }),
}

export const limits = z.object(sizes).meta({ id: 'Limits' })

export const scaled = z
  .object({
    ...sizes,
    autoscaleDisabled: z.boolean().meta({ description: 'Autoscale was on, and is off now' }),
  })
  .meta({ id: 'Scaled' })

const bound = z.int().min(0).optional()

export const setAutoscaleBody = z.object({
  enabled: z.boolean().meta({ description: 'Whether its memory follows its use' }),
  minMemoryMB: bound.meta({ description: 'Least memory in MiB; required to enable' }),
  maxMemoryMB: bound.meta({ description: 'Most memory in MiB; required to enable' }),
})

export const autoscale = z
  .object({
    sandboxID,
    enabled: z.boolean().meta({ description: 'Whether its memory follows its use' }),
    minMemoryMB: z.int().meta({ description: 'Least memory in MiB; 0 until it is first set' }),
    maxMemoryMB: z.int().meta({ description: 'Most memory in MiB; 0 until it is first set' }),
  })
  .meta({ id: 'Autoscale' })

export const setScalingLockBody = z.object({
  locked: z.boolean().meta({ description: 'Whether its sizes stay as they are' }),
})

export const scalingLock = z
  .object({ sandboxID, locked: z.boolean().meta({ description: 'Whether its sizes stay as they are' }) })
  .meta({ id: 'ScalingLock' })
