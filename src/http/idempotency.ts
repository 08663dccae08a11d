import { createCipheriv, createDecipheriv, createHash, randomBytes } from 'node:crypto'
import { ServiceError } from '../errors.ts'
import type { Caller } from './auth.ts'
import { JsonText } from './json-text.ts'
import type { Answer } from './route.ts'

/** The part of the store that remembers responses; see `store/idempotency.ts`. */
export interface IdempotencyPort {
  begin(orgId: string, key: string, requestHash: string, now: Date): Promise<IdempotencyState>
  finish(orgId: string, key: string, response: StoredResponse): Promise<void>
  abandon(orgId: string, key: string): Promise<void>
}

export interface StoredResponse {
  statusCode: number
  body: string
  headers?: Record<string, string>
}

export type IdempotencyState =
  | { state: 'new' }
  | { state: 'running' }
  | { state: 'conflict' }
  | ({ state: 'done' } & StoredResponse)

/**
 * Of an answer's JSON text. Larger ones are sessions with much said in them, which every message to them is answered with: kept whole,
 * a message of one byte would cost megabytes.
 */
const keptBytesMax = 64 * 1024
const keyPattern = /^[\x21-\x7e]{1,255}$/

export interface IdempotentRequest {
  orgId: string
  /** The header `Idempotency-Key`. */
  key: string
  caller: Pick<Caller, 'apiKey' | 'sessionId'>
  /** See `hashOf`. */
  hash: string
}

export interface Answering {
  run: () => Promise<Answer>
  /** The answer for what `run` threw. */
  failed: (error: unknown) => Answer
  /** The body of a session's answer, as the session is now. */
  session: (id: string) => Promise<unknown>
}

/** Tells whether two requests are the same. */
export function hashOf(method: string, path: string, body: Buffer): string {
  return createHash('sha256').update(`${method} ${path}\n`).update(body).digest('hex')
}

/**
 * Runs a creating request once per key. The same request again gets the first answer, another one with the same key
 * `idempotency_key_conflict`, and one that comes while the first still runs `conflict`. What says "not now" is no answer to
 * keep: a failure of the server, too many requests, a state that does not allow it. Answers may hold tokens that are shown
 * once, so what is stored can be read only with the caller's key. A session too large to be kept is answered as it is by then. The token of a session is renewed, and opens nothing that
 * shows one: keys that come with it are apart for each session, and what is kept for them is sealed with its id.
 */
export async function once(
  port: IdempotencyPort,
  request: IdempotentRequest,
  { run, failed, session }: Answering,
): Promise<Answer> {
  const { orgId, caller } = request
  if (!keyPattern.test(request.key)) {
    throw new ServiceError('invalid_request', 'Idempotency-Key must be 1 to 255 printable ASCII characters')
  }
  // No key holds a space, so none of the organisation's is one of a session's.
  const key = caller.sessionId === undefined ? request.key : `${caller.sessionId} ${request.key}`
  const sealing = sealKey(caller.sessionId ?? caller.apiKey, key)
  const state = await port.begin(orgId, key, request.hash, new Date())
  if (state.state === 'conflict') throw keyConflict('this Idempotency-Key was used with another request')
  if (state.state === 'running') {
    throw new ServiceError('conflict', 'the first request with this Idempotency-Key is still running')
  }
  if (state.state === 'done') return await replayed(state, sealing, session)

  let answer: Answer
  try {
    answer = await run()
  } catch (error) {
    answer = failed(error)
    if (mayPass(answer.statusCode)) {
      await port.abandon(orgId, key)
      throw error
    }
  }
  const body = seal(keptText(answer), sealing)
  await port.finish(orgId, key, { statusCode: answer.statusCode, body, headers: answer.headers ?? {} })
  return answer
}

/** Statuses of errors that a repeat may not meet. Whatever creates throws them before anything is created, or undoes it. */
function mayPass(statusCode: number): boolean {
  return statusCode >= 500 || statusCode === 429 || statusCode === 409
}

/** JSON of the body, which is never a text, or of the id of a session to be read again. */
function keptText({ body = null, sessionId }: Answer): string {
  const text = body instanceof JsonText ? body.within(keptBytesMax) : JSON.stringify(body)
  const isKept = text !== undefined && (sessionId === undefined || Buffer.byteLength(text) <= keptBytesMax)
  return isKept ? text : JSON.stringify(sessionId)
}

async function replayed(stored: StoredResponse, key: Buffer, session: Answering['session']): Promise<Answer> {
  const kept: unknown = JSON.parse(unseal(stored.body, key))
  const body = typeof kept === 'string' ? await session(kept) : kept
  return {
    statusCode: stored.statusCode,
    ...(body === null ? {} : { body }),
    headers: { ...stored.headers, 'idempotent-replayed': 'true' },
  }
}

function keyConflict(message: string): ServiceError {
  return new ServiceError('idempotency_key_conflict', message)
}

function sealKey(secret: string, key: string): Buffer {
  return createHash('sha256').update(`atoll idempotency\n${key}\n${secret}`).digest()
}

const cipher = 'aes-256-gcm'
const ivBytes = 12
const tagBytes = 16

function seal(text: string, key: Buffer): string {
  const iv = randomBytes(ivBytes)
  const sealing = createCipheriv(cipher, key, iv)
  const sealed = Buffer.concat([sealing.update(text, 'utf8'), sealing.final()])
  return Buffer.concat([iv, sealing.getAuthTag(), sealed]).toString('base64')
}

function unseal(text: string, key: Buffer): string {
  const bytes = Buffer.from(text, 'base64')
  const opening = createDecipheriv(cipher, key, bytes.subarray(0, ivBytes), { authTagLength: tagBytes })
  opening.setAuthTag(bytes.subarray(ivBytes, ivBytes + tagBytes))
  try {
    return Buffer.concat([opening.update(bytes.subarray(ivBytes + tagBytes)), opening.final()]).toString('utf8')
  } catch {
    throw keyConflict('this Idempotency-Key was used with another API key')
  }
}
