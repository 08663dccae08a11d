import { ServiceError } from '../errors.ts'
import type { Sandbox } from './sandbox.ts'

/** The reason on the record of a hibernated sandbox whose memory cannot be restored; `reasonMessage` is the cause. */
export function refusedMemory(error: ServiceError): Required<Pick<Sandbox, 'reason' | 'reasonMessage'>> {
  return { reason: 'memory_not_restorable', reasonMessage: error.message }
}

/** The error of each operation that would wake such a sandbox. */
export function memoryNotRestorable(sandboxId: string, why: string, cause?: unknown): ServiceError {
  const remedy = `wake sandbox ${sandboxId} with "memory": false to start it from its disk; its memory stays as a checkpoint`
  return new ServiceError('memory_not_restorable', `${why}; ${remedy}`, { cause })
}
