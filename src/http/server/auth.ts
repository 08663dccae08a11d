import type { FastifyRequest } from 'fastify'
import { isServiceError, ServiceError } from '../../errors.ts'
import type { Acting } from '../../events/index.ts'
import { defined } from '../../lib/defined.ts'
import type { Organisation, OrganisationStore } from '../../organisation/index.ts'
import { sha256 } from '../../lib/secret.ts'
import type { TokenBuckets } from '../../lib/token-bucket.ts'
import type { SessionService } from '../../session/index.ts'
import type { Route } from './route.ts'

/** Lifetime of a cached key; a revoked key works until then. */
const cacheMs = 10_000
const cachedKeysMax = 1000
const keyLengthMax = 512

export interface Caller {
  organisation: Pick<Organisation, 'id'> & Partial<Organisation>
  /** Absent for a token. */
  keyId?: string
  /** The key, or the token of a session, as sent. It must not be kept or logged. */
  apiKey: string
  /** Present for a token: its session, and its end. */
  sessionId?: string
  expiresAt?: Date
}

type KeyOwner = Organisation & { keyId: string }

interface AuthenticationDeps {
  organisations: OrganisationStore
  sessions: Pick<SessionService, 'access'>
}

/** Who acts in a request: a signed URL has no owner. */
export function actingOf(caller: Caller | undefined): Acting {
  if (caller === undefined) return { actor: { type: 'server' }, cause: 'signed_url' }
  const { sessionId, keyId } = caller
  const actor =
    sessionId === undefined
      ? { type: 'key' as const, ...defined({ id: keyId }) }
      : { type: 'token' as const, id: sessionId }
  return { actor, cause: 'request' }
}

/** Finds the caller of a request and applies the rate limit: per known key or token, else per remote address. */
export class Authentication {
  readonly #deps: AuthenticationDeps
  readonly #buckets: TokenBuckets
  readonly #cache = new Map<string, { organisation: KeyOwner; untilMs: number }>()

  constructor(deps: AuthenticationDeps, buckets: TokenBuckets) {
    this.#deps = deps
    this.#buckets = buckets
  }

  /** Throws `unauthorized` or `rate_limited`, and what `SessionService.access` throws. Undefined on routes without a key. */
  async admit(
    request: FastifyRequest,
    { auth, token: use }: Pick<Route, 'auth' | 'token'>,
  ): Promise<Caller | undefined> {
    if (auth === 'probe') return undefined
    if (auth === 'none' || auth === 'signed') {
      this.limitAddress(request)
      return undefined
    }
    const apiKey = sentKey(request, auth === 'key_or_query')
    const token = apiKey === undefined && use !== undefined ? inQuery(request, 'token') : undefined
    if (token !== undefined && use !== undefined) return await this.#admitToken(request, token, use)
    if (apiKey === undefined || apiKey.length > keyLengthMax) {
      this.limitAddress(request)
      throw new ServiceError(
        'unauthorized',
        apiKey === undefined ? 'an API key is required' : 'the API key is not known',
      )
    }
    const keyHash = sha256(apiKey)
    const organisation = this.#cached(keyHash) ?? (await this.#lookUp(keyHash, request))
    this.#limit(`key:${keyHash}`)
    return { organisation, apiKey, keyId: organisation.keyId }
  }

  limitAddress(request: FastifyRequest): void {
    this.#limit(`address:${request.ip}`)
  }

  async #admitToken(request: FastifyRequest, token: string, use: NonNullable<Route['token']>): Promise<Caller> {
    if (token.length > keyLengthMax) {
      this.limitAddress(request)
      throw new ServiceError('unauthorized', 'the token is not known')
    }
    const { sessionId = '' } = request.params as { sessionId?: string }
    // The limit comes before the store, so that refused uses count too.
    this.#limit(`token:${sha256(token)}`)
    try {
      const { orgId, expiresAt } = await this.#deps.sessions.access(token, sessionId, use)
      return { organisation: { id: orgId }, apiKey: token, sessionId, expiresAt }
    } catch (error) {
      if (isServiceError(error, 'unauthorized')) this.limitAddress(request)
      throw error
    }
  }

  #limit(name: string): void {
    const waitMs = this.#buckets.take(name)
    if (waitMs === 0) return
    throw new ServiceError('rate_limited', 'too many requests', { details: { retryAfterSeconds: waitMs / 1000 } })
  }

  #cached(keyHash: string): KeyOwner | undefined {
    const entry = this.#cache.get(keyHash)
    if (entry === undefined) return undefined
    if (entry.untilMs > Date.now()) return entry.organisation
    this.#cache.delete(keyHash)
    return undefined
  }

  /** Limits the address first, so that guessing keys does not load the store. */
  async #lookUp(keyHash: string, request: FastifyRequest): Promise<KeyOwner> {
    this.limitAddress(request)
    const organisation = await this.#deps.organisations.organisationByKey(keyHash)
    if (organisation === undefined) throw new ServiceError('unauthorized', 'the API key is not known')
    if (this.#cache.size >= cachedKeysMax) this.#cache.clear()
    this.#cache.set(keyHash, { organisation, untilMs: Date.now() + cacheMs })
    return organisation
  }
}

function sentKey(request: FastifyRequest, isInQuery: boolean): string | undefined {
  const header = request.headers['x-api-key']
  if (typeof header === 'string' && header !== '') return header
  const bearer = /^Bearer +(\S+)$/i.exec(request.headers.authorization ?? '')?.[1]
  if (bearer !== undefined) return bearer
  return isInQuery ? inQuery(request, 'api_key') : undefined
}

function inQuery(request: FastifyRequest, name: string): string | undefined {
  const value = (request.query as Record<string, unknown>)[name]
  return typeof value === 'string' && value !== '' ? value : undefined
}
