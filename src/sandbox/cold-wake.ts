import { ServiceError } from '../errors.ts'
import type { Checkpoint } from './checkpoint.ts'
import type { Sandbox } from './sandbox.ts'

/** What the record of a hibernated sandbox says whose memory did not come back and will not: `reasonMessage` is the cause. */
export function refusedMemory(error: ServiceError): Required<Pick<Sandbox, 'reason' | 'reasonMessage'>> {
  return { reason: 'memory_not_restorable', reasonMessage: error.message }
}

/** The answer to each operation that would wake it. */
export function memoryNotRestorable(sandboxId: string, why: string, cause?: unknown): ServiceError {
  const remedy = `wake sandbox ${sandboxId} with "memory": false to start it from its disk; its memory stays as a checkpoint`
  return new ServiceError('memory_not_restorable', `${why}; ${remedy}`, { cause })
}

/** The name of the checkpoint that keeps the memory of a sandbox which starts from its disk. */
export function keptMemoryName(createdAt: Date): string {
  return `before-cold-wake-${createdAt.toISOString()}`
}

/** Whether a cold wake has made it. A client may choose such a name, but not the moment of creation. */
export function isKeptMemory({ name, createdAt }: Pick<Checkpoint, 'name' | 'createdAt'>): boolean {
  return name === keptMemoryName(createdAt)
}
