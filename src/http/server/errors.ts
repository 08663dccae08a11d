import { STATUS_CODES } from 'node:http'
import { ServiceError, type ErrorCode } from '../../errors.ts'
import { statusOf } from '../../lib/error-status.ts'
import type { SessionErrorType } from '../../protocol/http/common.ts'

/** Error types of the Sessions API by status. Any other status is `unavailable`. */
const sessionTypes: Readonly<Record<number, SessionErrorType>> = {
  400: 'invalid_request',
  401: 'unauthorized',
  403: 'forbidden',
  404: 'not_found',
  409: 'conflict',
  410: 'conflict',
  413: 'invalid_request',
  429: 'rate_limited',
  500: 'internal_error',
}

/** Seconds after which a repeat may succeed, where the error does not say. */
const retryAfterSeconds = 1

export interface ErrorAnswer {
  statusCode: number
  headers: Record<string, string>
  body: object
}

/** The answer for an error, in the shape of the half that `path` belongs to. The message of an unknown error is not sent. */
export function errorAnswer(error: unknown, path: string): ErrorAnswer {
  const known = asServiceError(error)
  const statusCode = statusOf[known.code]
  // An answer to HEAD has no body, so a header has the code.
  const headers: Record<string, string> = { 'x-error-code': known.code }
  if (statusCode === 429 || statusCode === 503) headers['retry-after'] = retryAfter(known.details['retryAfterSeconds'])
  if (statusCode === 401) headers['www-authenticate'] = 'Bearer'
  return { statusCode, headers, body: isSessionPath(path) ? sessionErrorBody(known) : sandboxErrorBody(known) }
}

export function sandboxErrorBody(error: unknown): { error: string; code: ErrorCode } & Record<string, unknown> {
  const { code, message, details } = asServiceError(error)
  const { retryAfterSeconds: _header, ...facts } = details
  return { ...facts, error: message, code }
}

export function sessionErrorBody(error: unknown): { error: { type: string; code: ErrorCode; message: string } } {
  const { code, message } = asServiceError(error)
  return { error: { type: sessionTypes[statusOf[code]] ?? 'unavailable', code, message } }
}

export const brokenEscape =
  'the address has a percent sign that is not followed by two hexadecimal digits, or bytes that are not UTF-8'

/** Keeps a `ServiceError` and translates Fastify's errors that a client caused. All others become `internal_error`. */
export function asServiceError(error: unknown): ServiceError {
  if (error instanceof ServiceError) return error
  const { statusCode, code } = (error ?? {}) as { statusCode?: unknown; code?: unknown }
  if (statusCode === 413) return new ServiceError('too_large', 'the body is too large', { cause: error })
  if (typeof statusCode === 'number' && statusCode >= 400 && statusCode < 500) {
    const what = code === 'FST_ERR_BAD_URL' ? brokenEscape : 'the request is malformed'
    return new ServiceError('invalid_request', what, { cause: error })
  }
  return new ServiceError('internal_error', STATUS_CODES[500] ?? 'Internal Server Error', { cause: error })
}

function retryAfter(value: unknown): string {
  return String(typeof value === 'number' && value > 0 ? Math.ceil(value) : retryAfterSeconds)
}

export function isSessionPath(path: string): boolean {
  return path === '/v1' || path.startsWith('/v1/')
}
