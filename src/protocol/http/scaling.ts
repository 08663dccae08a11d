import { z } from 'zod'

const sandboxID = z.string().describe('Id of the sandbox')
const memoryMB = z.int().describe('Memory in MiB')

export const scaleBody = z.object({ memoryMB: z.int().positive().describe('Memory in MiB') })

export const limitsBody = z.object({
  memoryMB: z.int().min(0).optional().describe('Memory in MiB; 0 or absent leaves it'),
  cpuPercent: z
    .int()
    .min(0)
    .optional()
    .describe('100 is one CPU, at least 10; 0 or absent leaves it, unless `memoryMB` brings more'),
})

const sizes = {
  sandboxID,
  memoryMB,
  cpuPercent: z.number().describe('100 is one CPU'),
  workerID: z.string().describe('The host that runs it'),
  migrated: z.literal(false).describe('It has stayed on its host'),
  ok: z.literal(true).describe('Always true'),
}

export const limits = z.object(sizes).meta({ id: 'Limits' })

export const scaled = z
  .object({
    ...sizes,
    autoscaleDisabled: z.boolean().describe('Autoscale was on, and is off now'),
  })
  .meta({ id: 'Scaled' })

const bound = z.int().min(0).optional()

export const setAutoscaleBody = z.object({
  enabled: z.boolean().describe('Whether its memory follows its use'),
  minMemoryMB: bound.describe('Least memory in MiB; required to enable'),
  maxMemoryMB: bound.describe('Most memory in MiB; required to enable'),
})

export const autoscale = z
  .object({
    sandboxID,
    enabled: z.boolean().describe('Whether its memory follows its use'),
    minMemoryMB: z.int().describe('Least memory in MiB; 0 until it is first set'),
    maxMemoryMB: z.int().describe('Most memory in MiB; 0 until it is first set'),
  })
  .meta({ id: 'Autoscale' })

export const setScalingLockBody = z.object({
  locked: z.boolean().describe('Whether its sizes stay as they are'),
})

export const scalingLock = z
  .object({ sandboxID, locked: z.boolean().describe('Whether its sizes stay as they are') })
  .meta({ id: 'ScalingLock' })
