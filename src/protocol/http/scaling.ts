import { z } from 'zod'
import { memoryMB as sizeMB } from './common.ts'
import { ids, showExample } from './examples.ts'

const sandboxID = z.string().describe('Id of the sandbox')
const memoryMB = z.int().describe('Memory in MiB')

export const scaleBody = z.object({ memoryMB: sizeMB.describe('Memory in MiB') })
showExample(scaleBody, { memoryMB: 2048 })

export const limitsBody = z.object({
  memoryMB: z.int().min(0).optional().meta({ maximum: 65_536, description: 'Memory in MiB; 0 or absent leaves it' }),
  cpuPercent: z.int().min(0).optional().meta({
    maximum: 6400,
    description: '100 is one CPU, at least 10; 0 or absent leaves it, unless `memoryMB` brings more',
  }),
})
showExample(limitsBody, { memoryMB: 2048, cpuPercent: 200 })

const sizes = {
  sandboxID,
  memoryMB,
  cpuPercent: z.number().describe('100 is one CPU'),
  workerID: z.string().describe('The host that runs it'),
  migrated: z.literal(false).describe('It has stayed on its host'),
  ok: z.literal(true).describe('Always true'),
}

const example = {
  sandboxID: ids.sandbox,
  memoryMB: 2048,
  cpuPercent: 200,
  workerID: 'worker-1',
  migrated: false,
  ok: true,
} as const

export const limits = z.object(sizes).meta({ id: 'Limits', examples: [example] })

export const scaled = z
  .object({
    ...sizes,
    autoscaleDisabled: z.boolean().describe('Autoscale was on, and is off now'),
  })
  .meta({ id: 'Scaled', examples: [{ ...example, autoscaleDisabled: false }] })

const bound = z.int().min(0).optional().meta({ minimum: 64, maximum: 65_536 })

export const setAutoscaleBody = z.object({
  enabled: z.boolean().describe('Whether its memory follows its use'),
  minMemoryMB: bound.describe('Least memory in MiB; required to enable'),
  maxMemoryMB: bound.describe('Most memory in MiB; required to enable'),
})
showExample(setAutoscaleBody, { enabled: true, minMemoryMB: 1024, maxMemoryMB: 8192 })

export const autoscale = z
  .object({
    sandboxID,
    enabled: z.boolean().describe('Whether its memory follows its use'),
    minMemoryMB: z.int().describe('Least memory in MiB; 0 until it is first set'),
    maxMemoryMB: z.int().describe('Most memory in MiB; 0 until it is first set'),
  })
  .meta({
    id: 'Autoscale',
    examples: [{ sandboxID: ids.sandbox, enabled: true, minMemoryMB: 1024, maxMemoryMB: 8192 }],
  })

export const setScalingLockBody = z.object({
  locked: z.boolean().describe('Whether its sizes stay as they are'),
})
showExample(setScalingLockBody, { locked: true })

export const scalingLock = z
  .object({ sandboxID, locked: z.boolean().describe('Whether its sizes stay as they are') })
  .meta({ id: 'ScalingLock', examples: [{ sandboxID: ids.sandbox, locked: true }] })
