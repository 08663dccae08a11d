import { availableParallelism, totalmem } from 'node:os'

export const warmSandboxesPerCore = 5
export const warmMemoryPercent = 2
export const warmSandboxesMost = 64
/** Memory of an idle sandbox, including the kernel's. */
const warmSandboxBytes = 8 * 1024 * 1024

export interface WarmPoolSize {
  count: number
  /** Which bound decides the size. */
  boundBy: 'cores' | 'memory' | 'most'
}

/** Default number of warm sandboxes: enough for a burst of creates while a few cold starts run, in a small part of the memory. */
export function defaultWarmPoolSize(cores = availableParallelism(), memoryBytes = totalmem()): WarmPoolSize {
  const byCores = warmSandboxesPerCore * cores
  const byMemory = Math.floor((memoryBytes * warmMemoryPercent) / 100 / warmSandboxBytes)
  const count = Math.min(byCores, byMemory, warmSandboxesMost)
  return { count, boundBy: count === byCores ? 'cores' : count === byMemory ? 'memory' : 'most' }
}
