import {
  AtollError,
  ConnectionError,
  RequestTimeoutError,
  UnexpectedAnswerError,
  type ErrorCode,
} from '../../sdk/src/index.ts'
import { faultOf } from './faults.ts'

/** Exit codes of a command; docs/use/cli.md has the same table. */
export const exitCodes = {
  done: 0,
  failed: 1,
  usage: 2,
  unreachable: 3,
  unauthorized: 4,
  notFound: 5,
  conflict: 6,
  refusedForNow: 7,
  /** `exec`, `shell` or `ssh` failed itself; every other code of theirs is that of the remote command. */
  ownFailure: 125,
  interrupted: 130,
} as const

type ExitCode = (typeof exitCodes)[keyof typeof exitCodes]

/** A new code does not compile without an exit code. */
export const exitCodeOfError: Record<ErrorCode, ExitCode> = {
  invalid_request: exitCodes.failed,
  unauthorized: exitCodes.unauthorized,
  forbidden: exitCodes.unauthorized,
  signature_invalid: exitCodes.unauthorized,
  signature_expired: exitCodes.unauthorized,
  not_found: exitCodes.notFound,
  scaling_locked: exitCodes.conflict,
  organisation_suspended: exitCodes.unauthorized,
  quota_exceeded: exitCodes.failed,
  conflict: exitCodes.conflict,
  oom_floor: exitCodes.conflict,
  memory_not_restorable: exitCodes.conflict,
  idempotency_key_conflict: exitCodes.conflict,
  sandbox_stopped: exitCodes.conflict,
  events_expired: exitCodes.conflict,
  too_large: exitCodes.failed,
  patch_failed: exitCodes.failed,
  build_failed: exitCodes.failed,
  rate_limited: exitCodes.refusedForNow,
  nothing_listening: exitCodes.failed,
  not_implemented: exitCodes.failed,
  unavailable: exitCodes.refusedForNow,
  no_capacity: exitCodes.refusedForNow,
  disk_full: exitCodes.failed,
  full_checkpoint_unavailable: exitCodes.refusedForNow,
  internal_error: exitCodes.failed,
}

/** Answers of the Sessions API have no code. */
const exitCodeOfStatus: Record<number, ExitCode> = {
  401: exitCodes.unauthorized,
  403: exitCodes.unauthorized,
  404: exitCodes.notFound,
  409: exitCodes.conflict,
  410: exitCodes.conflict,
  429: exitCodes.refusedForNow,
  503: exitCodes.refusedForNow,
}

/** A mistake of the caller, found before anything was asked of the server. */
export class UsageError extends Error {}

/** A failure with a next step. */
export class CliError extends Error {
  readonly hint: string | undefined
  readonly exitCode: number

  constructor(
    message: string,
    { hint, exitCode = exitCodes.failed, cause }: { hint?: string; exitCode?: number; cause?: unknown } = {},
  ) {
    super(message, { cause })
    this.hint = hint
    this.exitCode = exitCode
  }
}

/** A failure of `exec`, `shell` or `ssh` itself, and not of the remote command. */
export class OwnFailure extends Error {
  constructor(cause: unknown) {
    super('the command line failed', { cause })
  }
}

/** Gives a failure of a command itself an exit code of its own: all others are those of the remote command. */
export function ownFailure(error: Error & { exitCode?: number }): never {
  // Help is no failure.
  if (error.exitCode === 0) throw error
  throw new OwnFailure(error)
}

export function exitCodeOf(error: unknown): number {
  if (error instanceof OwnFailure) return exitCodes.ownFailure
  if (error instanceof UsageError) return exitCodes.usage
  if (error instanceof CliError) return error.exitCode
  if (!(error instanceof AtollError)) return exitCodes.failed
  // The file of an upload, which the request failed with.
  if (faultOf(error)?.code === 'local_error') return exitCodes.failed
  if (error.code !== undefined) return exitCodeOfError[error.code]
  const isUnreachable =
    error instanceof ConnectionError || error instanceof RequestTimeoutError || error instanceof UnexpectedAnswerError
  return isUnreachable ? exitCodes.unreachable : (exitCodeOfStatus[error.status ?? 0] ?? exitCodes.failed)
}
