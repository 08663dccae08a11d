import { STATUS_CODES } from 'node:http'
import { ServiceError } from '../../errors.ts'
import type { ErrorCode } from '../../errors.ts'
import type { SessionErrorType } from '../../protocol/http/common.ts'

/** The status of each code (docs/errors.md). */
export const statusByCode: Record<ErrorCode, number> = {
  invalid_request: 400,
  unauthorized: 401,
  forbidden: 403,
  signature_invalid: 403,
  signature_expired: 403,
  not_found: 404,
  conflict: 409,
  idempotency_key_conflict: 409,
  sandbox_stopped: 410,
  too_large: 413,
  patch_failed: 422,
  rate_limited: 429,
  internal_error: 500,
  not_implemented: 501,
  nothing_listening: 502,
  unavailable: 503,
  no_capacity: 503,
  full_checkpoint_unavailable: 503,
}

/** The Sessions API has fewer words for what went wrong. */
export const sessionTypeByCode: Record<ErrorCode, SessionErrorType> = {
  invalid_request: 'invalid_request',
  unauthorized: 'unauthorized',
  forbidden: 'forbidden',
  signature_invalid: 'forbidden',
  signature_expired: 'forbidden',
  not_found: 'not_found',
  conflict: 'conflict',
  idempotency_key_conflict: 'conflict',
  sandbox_stopped: 'conflict',
  too_large: 'invalid_request',
  patch_failed: 'unavailable',
  rate_limited: 'rate_limited',
  internal_error: 'internal_error',
  not_implemented: 'unavailable',
  nothing_listening: 'unavailable',
  unavailable: 'unavailable',
  no_capacity: 'unavailable',
  full_checkpoint_unavailable: 'unavailable',
}

/** Seconds after which a repeat may succeed, where the error does not say. */
const retryAfterSeconds = 1

export interface ErrorAnswer {
  statusCode: number
  headers: Record<string, string>
  body: object
}

/** What a client gets for an error, in the shape of the half that `path` belongs to. An unknown error tells nothing. */
export function errorAnswer(error: unknown, path: string): ErrorAnswer {
  const known = asServiceError(error)
  const statusCode = statusByCode[known.code]
  const headers: Record<string, string> = {}
  if (statusCode === 429 || statusCode === 503) headers['retry-after'] = retryAfter(known.details['retryAfterSeconds'])
  if (statusCode === 401) headers['www-authenticate'] = 'Bearer'
  return { statusCode, headers, body: isSessionPath(path) ? sessionBody(known) : sandboxErrorBody(known) }
}

export function sandboxErrorBody(error: unknown): { error: string; code: ErrorCode } & Record<string, unknown> {
  const { code, message, details } = asServiceError(error)
  const { retryAfterSeconds: _header, ...facts } = details
  return { ...facts, error: message, code }
}

function sessionBody({ code, message }: ServiceError): object {
  return { error: { type: sessionTypeByCode[code], message } }
}

/** Both halves' own errors, Fastify's as far as a client caused them, and nothing of the rest. */
export function asServiceError(error: unknown): ServiceError {
  if (error instanceof ServiceError) return error
  const { statusCode } = (error ?? {}) as { statusCode?: unknown }
  if (statusCode === 413) return new ServiceError('too_large', 'the body is too large', { cause: error })
  if (typeof statusCode === 'number' && statusCode >= 400 && statusCode < 500) {
    return new ServiceError('invalid_request', 'the request is malformed', { cause: error })
  }
  return new ServiceError('internal_error', STATUS_CODES[500] ?? 'Internal Server Error', { cause: error })
}

function retryAfter(value: unknown): string {
  return String(typeof value === 'number' && value > 0 ? Math.ceil(value) : retryAfterSeconds)
}

export function isSessionPath(path: string): boolean {
  return path === '/v1' || path.startsWith('/v1/')
}
