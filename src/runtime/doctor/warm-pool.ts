import { availableParallelism, totalmem } from 'node:os'
import { defaultWarmPoolSize, warmMemoryPercent, warmSandboxesPerCore } from '../warm-pool-size.ts'
import { works, type HostCheck } from '../self-test.ts'

/** Tells the number of warm sandboxes, and what decides it. It never fails. */
export const warmPoolCheck: HostCheck = {
  name: 'warm sandboxes',
  required: false,
  async run({ warmSandboxes }) {
    return works(foundOf(warmSandboxes, availableParallelism(), totalmem()))
  },
}

export function foundOf(given: number | undefined, cores: number, memoryBytes: number): string {
  if (given !== undefined) return `${given || 'none'}, as ATOLL_WARM_POOL says`
  const { count, boundBy } = defaultWarmPoolSize(cores, memoryBytes)
  const memory = `${warmMemoryPercent} % of ${(memoryBytes / 2 ** 30).toFixed(1)} GB of memory`
  if (count === 0) return `none by default: ${memory} is too little`
  const reasons = {
    cores: `${warmSandboxesPerCore} for each of ${cores} cores`,
    memory: `as many as ${memory} holds`,
    most: 'the most without ATOLL_WARM_POOL',
  }
  return `${count} wait for an owner by default: ${reasons[boundBy]}`
}
