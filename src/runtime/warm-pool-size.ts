import { availableParallelism, totalmem } from 'node:os'

export const warmSandboxesPerCore = 5
export const warmMemoryPercent = 2
export const warmSandboxesMost = 64
/** What an idle sandbox holds, with the kernel's part. */
const warmSandboxBytes = 8 * 1024 * 1024

export interface WarmPoolSize {
  count: number
  /** What keeps it from being larger. */
  boundBy: 'cores' | 'memory' | 'most'
}

/** How many sandboxes wait for an owner by default: a burst of creates in the time that a few cold starts take, in a small part of the memory. */
export function defaultWarmPoolSize(cores = availableParallelism(), memoryBytes = totalmem()): WarmPoolSize {
  const byCores = warmSandboxesPerCore * cores
  const byMemory = Math.floor((memoryBytes * warmMemoryPercent) / 100 / warmSandboxBytes)
  const count = Math.min(byCores, byMemory, warmSandboxesMost)
  return { count, boundBy: count === byCores ? 'cores' : count === byMemory ? 'memory' : 'most' }
}
