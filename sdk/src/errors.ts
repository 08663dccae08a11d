import type { components } from './api.ts'
import { localReason, reasonOf } from './reasons.ts'

/** The machine-readable reason of an error (`docs/use/errors.md`). */
export type ErrorCode = components['schemas']['Error']['code']

export interface AtollErrorOptions extends ErrorOptions {
  code?: ErrorCode
  status?: number
  retryAfterSeconds?: number
  details?: Record<string, unknown>
}

/** Superclass of every error of this package. Its message is for a person. */
export class AtollError extends Error {
  /** Absent where no answer of the server came. */
  readonly code: ErrorCode | undefined
  /** The HTTP status. Absent where no answer came. */
  readonly status: number | undefined
  /** When the server asks to be asked again, in seconds. */
  readonly retryAfterSeconds: number | undefined
  /** Facts that came with the error: `field`, `reason`, `patchId`, `exitCode`, `stderr` … */
  readonly details: Record<string, unknown>

  constructor(message: string, options: AtollErrorOptions = {}) {
    super(message, options)
    this.name = new.target.name
    this.code = options.code
    this.status = options.status
    this.retryAfterSeconds = options.retryAfterSeconds
    this.details = options.details ?? {}
  }
}

/** The server cannot be reached, or the connection broke before its answer. `cause` is the error of `fetch`. */
export class ConnectionError extends AtollError {}
/** The server did not answer within `requestTimeoutMs`. What was asked for may happen all the same. */
export class RequestTimeoutError extends AtollError {}
/** An answer that is not Atoll's: another server listens at the URL, or a proxy answered. */
export class UnexpectedAnswerError extends AtollError {}

/** The request breaks a rule; `details.field` names the field. */
export class InvalidRequestError extends AtollError {}
/** No API key, or one that the server does not know. */
export class UnauthorizedError extends AtollError {}
/** The user is not the owner of the session. */
export class ForbiddenError extends AtollError {}
/** The size of the sandbox is locked. */
export class ScalingLockedError extends AtollError {}
/** The organisation has no disk left for that: `details` has `limitMB`, `usedMB` and `askedMB`. */
export class QuotaExceededError extends AtollError {}
/** A signed URL was altered. */
export class SignatureInvalidError extends AtollError {}
/** A signed URL is past its time. */
export class SignatureExpiredError extends AtollError {}
/** The thing does not exist, or belongs to somebody else. */
export class NotFoundError extends AtollError {}
/** Its state does not allow it; `details.reason` says which. */
export class ConflictError extends AtollError {}
/** The processes of the sandbox need more memory than that; `details.details` says how much. */
export class OomFloorError extends AtollError {}
/** CRIU refuses this saved memory, now and later: `wake({memory: false})` starts the sandbox from its disk. */
export class MemoryNotRestorableError extends AtollError {}
/** The idempotency key was used with another request. */
export class IdempotencyKeyConflictError extends AtollError {}
/** The sandbox is stopped for good. */
export class SandboxStoppedError extends AtollError {}
/** The next events are deleted by now: `details.oldest` is the oldest that is kept. */
export class EventsExpiredError extends AtollError {}
/** A body, file or text is over its limit. */
export class TooLargeError extends AtollError {}
/** A patch of the checkpoint failed: `details` has `patchId`, `exitCode` and `stderr`. */
export class PatchFailedError extends AtollError {}
/** A step of an image failed: `details` has `step`, `type`, `exitCode` and `stderr`. */
export class BuildFailedError extends AtollError {}
/** The operator has suspended the organisation, or is deleting it. */
export class OrganisationSuspendedError extends AtollError {}
/** Too many requests, sandboxes or streams; wait `retryAfterSeconds`. */
export class RateLimitedError extends AtollError {}
/** Nothing listens on the port. */
export class NothingListeningError extends AtollError {}
/** This version of the server does not have it. */
export class NotImplementedError extends AtollError {}
/** The server, its database or the sandbox does not answer right now. */
export class UnavailableError extends AtollError {}
/** The machine has no room for another sandbox, or its disk is full. */
export class NoCapacityError extends AtollError {}
/** The disk of the sandbox, or the volume, is full. */
export class DiskFullError extends AtollError {}
/** This machine cannot keep or bring back memory. */
export class FullCheckpointUnavailableError extends AtollError {}
/** A fault of the server. */
export class InternalError extends AtollError {}

/** A new code does not compile without a class. */
const classes: Record<ErrorCode, typeof AtollError> = {
  invalid_request: InvalidRequestError,
  unauthorized: UnauthorizedError,
  forbidden: ForbiddenError,
  scaling_locked: ScalingLockedError,
  organisation_suspended: OrganisationSuspendedError,
  quota_exceeded: QuotaExceededError,
  signature_invalid: SignatureInvalidError,
  signature_expired: SignatureExpiredError,
  not_found: NotFoundError,
  conflict: ConflictError,
  oom_floor: OomFloorError,
  memory_not_restorable: MemoryNotRestorableError,
  idempotency_key_conflict: IdempotencyKeyConflictError,
  sandbox_stopped: SandboxStoppedError,
  events_expired: EventsExpiredError,
  too_large: TooLargeError,
  patch_failed: PatchFailedError,
  build_failed: BuildFailedError,
  rate_limited: RateLimitedError,
  nothing_listening: NothingListeningError,
  not_implemented: NotImplementedError,
  unavailable: UnavailableError,
  no_capacity: NoCapacityError,
  disk_full: DiskFullError,
  full_checkpoint_unavailable: FullCheckpointUnavailableError,
  internal_error: InternalError,
}

/** The error for an answer with a status of 400 or more. `text` is its body. */
export function errorOf(status: number, headers: Headers, text: string): AtollError {
  const retryAfterSeconds = secondsOf(headers.get('retry-after'))
  const common = { status, ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }) }
  const { code, message, details } = told(objectOf(text))
  const named = known(headers.get('x-error-code')).code
  if (message === undefined && named !== undefined) {
    // An answer to HEAD has no body.
    return makeError(named, `the server answered ${status} (${named})`, common)
  }
  if (message === undefined) {
    return new UnexpectedAnswerError(`the server answered ${status}, which is no answer of Atoll`, common)
  }
  // A newer server may have more codes.
  if (code === undefined) return new AtollError(message, { ...common, details })
  return makeError(code, message, { ...common, details })
}

/** The error of one thing of several, inside an answer that is none. `body` has the form of an error. */
export function errorIn(body: Record<string, unknown>): AtollError {
  const { code, message = 'it failed', details } = told(body)
  return code === undefined ? new AtollError(message, { details }) : makeError(code, message, { details })
}

/** The error of a code, also where it comes inside another answer. */
export function makeError(code: ErrorCode, message: string, options: AtollErrorOptions = {}): AtollError {
  return new classes[code](message, { ...options, code })
}

/** The same error with what it means for the caller as its message. A fault of this machine stays without a code. */
export function withMessage(error: unknown, message: (reason: string) => string): AtollError {
  if (!(error instanceof AtollError))
    return new AtollError(message(localReason(error) ?? reasonOf(error)), { cause: error })
  const { code, status, retryAfterSeconds, details } = error
  const facts = { ...(code && { code }), ...(status && { status }), ...(retryAfterSeconds && { retryAfterSeconds }) }
  return new (error.constructor as typeof AtollError)(message(error.message), { ...facts, details, cause: error })
}

/** `/api` answers `{error, code, …}`, `/v1` `{error: {type, message, code}}`. */
function told(body: Record<string, unknown>): {
  code?: ErrorCode
  message?: string
  details: Record<string, unknown>
} {
  const { error, code, ...details } = body
  if (typeof error === 'string') return { ...known(code), message: error, details }
  const { message, code: inner } = (error ?? {}) as { message?: unknown; code?: unknown }
  return { ...known(inner), ...(typeof message === 'string' ? { message } : {}), details: {} }
}

function known(code: unknown): { code?: ErrorCode } {
  return typeof code === 'string' && Object.hasOwn(classes, code) ? { code: code as ErrorCode } : {}
}

function objectOf(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}
  } catch {
    return {}
  }
}

function secondsOf(header: string | null): number | undefined {
  const seconds = Number(header)
  return header === null || !Number.isFinite(seconds) || seconds < 0 ? undefined : seconds
}
