/**
 * The closed list of codes that Atoll answers with. `lib/error-status.ts` maps each to a status; `docs/use/errors.md` explains each.
 * Adding one here without both does not pass the type check or the tests.
 */
export const errorCodes = [
  'invalid_request',
  'unauthorized',
  'forbidden',
  'scaling_locked',
  'organisation_suspended',
  'quota_exceeded',
  'signature_invalid',
  'signature_expired',
  'not_found',
  'conflict',
  'oom_floor',
  'memory_not_restorable',
  'idempotency_key_conflict',
  'sandbox_stopped',
  'events_expired',
  'too_large',
  'patch_failed',
  'build_failed',
  'rate_limited',
  'nothing_listening',
  'not_implemented',
  'unavailable',
  'no_capacity',
  'disk_full',
  'full_checkpoint_unavailable',
  'internal_error',
] as const

export type ErrorCode = (typeof errorCodes)[number]

export interface ServiceErrorOptions extends ErrorOptions {
  /** Facts for the client, answered beside the message: `{patchId, exitCode, stderr}`, `{retryAfterSeconds}`. */
  details?: Record<string, unknown>
}

/** A fault of the world (bad input, a missing resource, a full disk), told to the client. Our own bugs are plain errors. */
export class ServiceError extends Error {
  readonly code: ErrorCode
  readonly details: Record<string, unknown>

  constructor(code: ErrorCode, message: string, options: ServiceErrorOptions = {}) {
    super(message, options)
    this.name = 'ServiceError'
    this.code = code
    this.details = options.details ?? {}
  }
}

export function isServiceError(error: unknown, code?: ErrorCode): error is ServiceError {
  return error instanceof ServiceError && (code === undefined || error.code === code)
}

/** For `catch` of calls to which a thing that is gone is no failure. */
export function ignoreNotFound(error: unknown): undefined {
  if (!isServiceError(error, 'not_found')) throw error
}
