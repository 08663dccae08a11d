import type { ClientRequest } from 'node:http'
import { isServiceError } from '../errors.ts'
import type { ErrorCode, ServiceError } from '../errors.ts'
import type { Refusal } from './page.ts'

export const unknownHost: Refusal = {
  statusCode: 404,
  code: 'not_found',
  message: 'No sandbox has this address',
  advice: 'Check the name: a preview is <sandbox>-p<port> and the host of the previews.',
}
export const stopped: Refusal = {
  statusCode: 410,
  code: 'sandbox_stopped',
  message: 'This sandbox is stopped',
  advice: 'It was ended for good and will not come back under this address.',
}
export const wrongToken: Refusal = {
  statusCode: 401,
  code: 'unauthorized',
  message: 'This preview asks for a token',
  advice: 'Send it as "Authorization: Bearer …" or as "X-OC-Preview-Token". Whoever declared the preview has it.',
  headers: { 'www-authenticate': 'Bearer' },
}
export const badAnswer: Refusal = {
  statusCode: 502,
  code: 'nothing_listening',
  message: 'The server in the sandbox broke off, or answered what is no HTTP',
  advice: 'Its own output says more.',
}
const unavailable: Refusal = {
  statusCode: 503,
  code: 'unavailable',
  message: 'The sandbox cannot be reached right now',
  advice: 'It may be waking up, or the machine is busy.',
  headers: { 'retry-after': '1' },
  mayCome: true,
}

function nothingListens(port: number): Refusal {
  return {
    statusCode: 502,
    code: 'nothing_listening',
    message: `Nothing listens on port ${port} of this sandbox`,
    advice: 'Start a server on this port, or wait until it is up.',
    mayCome: true,
  }
}

function ofTheAgent(port: number): Refusal {
  return {
    statusCode: 403,
    code: 'forbidden',
    message: `Port ${port} belongs to the agent of this sandbox`,
    advice: 'Previews show what runs in the sandbox, not what the agent works with. Serve it on another port.',
  }
}

type Known = (port: number, error: ServiceError) => Refusal

/** What the way into a sandbox may meet; null is what only a fault of ours can bring there. */
const byCode: Record<ErrorCode, Known | null> = {
  nothing_listening: nothingListens,
  forbidden: ofTheAgent,
  sandbox_stopped: () => stopped,
  not_found: () => unknownHost,
  conflict: () => ({
    statusCode: 409,
    code: 'conflict',
    message: 'This sandbox is in a state in which it cannot answer',
    advice: 'The API says what happened to it.',
  }),
  unavailable: () => unavailable,
  no_capacity: () => ({
    ...unavailable,
    code: 'no_capacity',
    message: 'There is no room to wake this sandbox right now',
    advice: 'Others must stop or hibernate first.',
  }),
  rate_limited: (_port, { details }) => ({
    ...unavailable,
    statusCode: 429,
    code: 'rate_limited',
    message: 'This sandbox sleeps, and others of its organisation have all the places to run',
    advice: 'Some must stop or hibernate first.',
    headers: { 'retry-after': retryAfter(details['retryAfterSeconds']) },
  }),
  patch_failed: () => ({
    statusCode: 422,
    code: 'patch_failed',
    message: 'A patch of this sandbox failed, so it was not woken',
    advice: 'Whoever has its API key is told which one and why by any call that wakes it.',
  }),
  full_checkpoint_unavailable: () => ({
    ...unavailable,
    code: 'full_checkpoint_unavailable',
    message: 'The memory of this sandbox cannot be brought back on this machine',
    advice: 'The API says why.',
    mayCome: false,
  }),
  invalid_request: null,
  unauthorized: null,
  signature_invalid: null,
  signature_expired: null,
  idempotency_key_conflict: null,
  too_large: null,
  not_implemented: null,
  internal_error: null,
}

function retryAfter(seconds: unknown): string {
  return String(typeof seconds === 'number' ? Math.max(1, Math.ceil(seconds)) : 1)
}

/** What to say when a sandbox could not be reached; undefined for an error that is nobody's fault but ours. */
export function refusalFor(error: unknown, port: number): Refusal | undefined {
  return isServiceError(error) ? byCode[error.code]?.(port, error) : undefined
}

export const internalError: Refusal = { statusCode: 500, code: 'internal_error', message: 'Something went wrong here' }

/** Interim answers (103 Early Hints and the like) of one request; they are dropped, and reading them costs. */
const interimAnswersMax = 16

/** Ends a request whose answer never comes to its point. */
export function boundInterim(upstream: ClientRequest): void {
  let count = 0
  upstream.on('information', () => {
    count++
    if (count === interimAnswersMax + 1) upstream.destroy(new InterimFlood())
  })
}

class InterimFlood extends Error {
  readonly code = 'ERR_HTTP_INTERIM_FLOOD'
}
