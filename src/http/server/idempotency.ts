import { createCipheriv, createDecipheriv, createHash, createHmac, randomBytes } from 'node:crypto'
import { setImmediate as nextRound } from 'node:timers/promises'
import type { FastifyRequest } from 'fastify'
import { isServiceError, ServiceError } from '../../errors.ts'
import { type Claim, Creation, type IdempotencyState, type StoredResponse } from '../../lib/creation.ts'
import type { Caller } from './auth.ts'
import { asServiceError } from './errors.ts'
import { JsonText } from './json-text.ts'
import type { Answer } from './route.ts'

/** The part of the store that remembers requests; see `store/idempotency.ts`. */
export interface IdempotencyPort {
  begin(claim: Claim, requestHash: string, now: Date): Promise<IdempotencyState>
  finish(claim: Claim, requestHash: string, begun: Date, response: StoredResponse): Promise<void>
  abandon(claim: Claim): Promise<void>
}

/**
 * Bounds a kept answer. Every message to a long session is answered with the whole session, so that a message of one byte would
 * cost megabytes.
 */
const keptBytesMax = 64 * 1024
const seedBytes = 32
const keyPattern = /^[\x21-\x7e]{1,255}$/

export interface IdempotentRequest {
  orgId: string
  /** The header `Idempotency-Key`. */
  key: string
  caller: Pick<Caller, 'credential' | 'sessionId' | 'isOperator'>
  /** See `hashOf`. */
  hash: string
}

export interface Answering {
  run: (creation: Creation) => Promise<Answer>
  /** Reserves an id for what the request makes, if one is at hand. */
  reserve?: (() => string | undefined) | undefined
  /** Gives back an id that no run of the request can use any more; harmless when it was used. */
  release?: (id: string) => void
  /** The answer for what `run` threw. */
  failed: (error: unknown) => Answer
  /** The body of an answer with `readAgainBy`, as its sessions are now. */
  again: (by: string) => Promise<unknown>
}

/** Two requests with the same hash are the same request. */
export async function hashOf({ method, url }: Pick<FastifyRequest, 'method' | 'url'>, body: Buffer): Promise<string> {
  const [path = '/'] = url.split('?', 1)
  const hash = createHash('sha256').update(`${method} ${path}\n`)
  for (let at = 0; at < body.length; at += hashedAtOnceBytes) {
    if (at > 0) await nextRound()
    hash.update(body.subarray(at, at + hashedAtOnceBytes))
  }
  return hash.digest('hex')
}

/** Some milliseconds of work. */
const hashedAtOnceBytes = 1024 * 1024

/**
 * Lets creating requests have their effect once per key. The same request again gets the first answer, another one with the same key
 * `idempotency_key_conflict`, and one that comes while the first still runs `conflict`. A request that was cut off before its answer was
 * kept is run again with what it has made (`Creation`). An answer that a repeat may change is not kept: a failure of the server, too many
 * requests, a state that does not allow the request, something that does not exist yet.
 *
 * Answers may hold tokens that are shown once and derive from the seed, so both are sealed with the caller's key. A session too large to
 * be kept is read again for the replay. A session's token is renewed, so it cannot seal, but it opens no endpoint that shows a token. So
 * keys that come with it are separate for each session, and sealed with the session's id. The cookie of a browser seals with what all sessions of its
 * key have in common, so that a repeat after the next sign-in is one.
 */
export class Idempotency {
  readonly #port: IdempotencyPort
  /** Hashes of requests that run, by key. A database has one server, so what does not run here does not run. */
  readonly #running = new Map<string, string>()

  constructor(port: IdempotencyPort) {
    this.#port = port
  }

  async once(request: IdempotentRequest, answering: Answering): Promise<Answer> {
    const { orgId, caller } = request
    if (!keyPattern.test(request.key)) {
      throw new ServiceError('invalid_request', 'Idempotency-Key must be 1 to 255 printable ASCII characters')
    }
    // A key of a client has no space, so keys of the organisation, of its sessions and of the operator do not collide.
    const owner = caller.isOperator === true ? 'operator' : caller.sessionId
    const key = owner === undefined ? request.key : `${owner} ${request.key}`
    const name = `${orgId} ${key}`
    const running = this.#running.get(name)
    if (running === request.hash) {
      throw new ServiceError('conflict', 'the first request with this Idempotency-Key is still running')
    }
    if (running !== undefined) throw otherRequest()
    this.#running.set(name, request.hash)
    try {
      return await this.#run(request, key, answering)
    } finally {
      this.#running.delete(name)
    }
  }

  async #run({ orgId, caller, hash: plain }: IdempotentRequest, key: string, answering: Answering): Promise<Answer> {
    const secret = caller.sessionId ?? caller.credential
    const sealing = createHash('sha256').update(`atoll idempotency\n${key}\n${secret}`).digest()
    // A body may hold a secret that is easy to guess, and the hash is stored.
    const hash = createHmac('sha256', sealing).update(plain).digest('hex')
    const reserved = answering.reserve?.()
    const fresh = seal([randomBytes(seedBytes).toString('base64'), ...(reserved ? [reserved] : [])].join(' '), sealing)
    const release = () => {
      if (reserved !== undefined) answering.release?.(reserved)
    }
    const begun = new Date()
    // If `begin` fails, the seed may be stored all the same, and a repeat uses the reserved id.
    const state = await this.#port.begin({ orgId, key, seed: fresh }, hash, begun)
    if (state.state !== 'claimed' || state.seed !== fresh) release()
    if (state.state === 'conflict') throw otherRequest()
    if (state.state === 'done') return replayed(await kept(state, sealing, answering.again))
    const claim: Claim = { orgId, key, seed: state.seed }
    const creation = new Creation(claim, state.made, unseal(state.seed, sealing))
    const answer = await this.#answer(creation, answering, state.seed === fresh ? release : undefined)
    const { statusCode, headers = {} } = answer
    await this.#port.finish(claim, hash, begun, { statusCode, body: seal(keptText(answer), sealing), headers })
    release()
    return creation.made.length === 0 ? answer : replayed(answer)
  }

  /** Throws errors whose answer is not kept. `abandoned`, of a first run, is called when the seed is gone. */
  async #answer(creation: Creation, { run, failed }: Answering, abandoned?: () => void): Promise<Answer> {
    try {
      return await run(creation)
    } catch (error) {
      const answer = failed(error)
      if (!mayPass(answer.statusCode) && !isServiceError(error, 'quota_exceeded')) return answer
      // Only a first run is abandoned: an earlier run may have acted in a guest, and the seed alone leads back to that. If the row cannot
      // be removed, a repeat takes it up.
      if (abandoned && isRefusal(error)) await this.#port.abandon(creation.claim).then(abandoned, () => undefined)
      throw error
    }
  }
}

/** Whether a repeat may get another answer. */
function mayPass(statusCode: number): boolean {
  return statusCode >= 500 || statusCode === 429 || statusCode === 409 || statusCode === 404
}

/** Whether it is certain that nothing was done. After other failures the key stays with its request. */
function isRefusal(error: unknown): boolean {
  const { code } = asServiceError(error)
  return code !== 'unavailable' && code !== 'internal_error'
}

/** JSON of the body, which is never a text, or of what it is read again by. */
function keptText({ body = null, readAgainBy }: Answer): string {
  const text = body instanceof JsonText ? body.within(keptBytesMax) : JSON.stringify(body)
  const isKept = text !== undefined && (readAgainBy === undefined || Buffer.byteLength(text) <= keptBytesMax)
  return isKept ? text : JSON.stringify(readAgainBy)
}

async function kept(stored: StoredResponse, key: Buffer, again: Answering['again']): Promise<Answer> {
  const text: unknown = JSON.parse(unseal(stored.body, key))
  const body = typeof text === 'string' ? await again(text) : text
  return { statusCode: stored.statusCode, ...(body === null ? {} : { body }), headers: stored.headers ?? {} }
}

function replayed(answer: Answer): Answer {
  return { ...answer, headers: { ...answer.headers, 'idempotent-replayed': 'true' } }
}

function otherRequest(): ServiceError {
  return keyConflict('this Idempotency-Key was used with another request')
}

function keyConflict(message: string): ServiceError {
  return new ServiceError('idempotency_key_conflict', message)
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
