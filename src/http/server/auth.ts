import type { FastifyRequest } from 'fastify'
import { isServiceError, ServiceError } from '../../errors.ts'
import type { Acting } from '../../events/index.ts'
import { defined } from '../../lib/defined.ts'
import type { Keys, KnownKey, Operator, Organisation, Organisations } from '../../organisation/index.ts'
import type { Scope } from '../../organisation/scopes.ts'
import type { KeyReach } from '../../lib/key-reach.ts'
import { sha256 } from '../../lib/secret.ts'
import { TokenBuckets } from '../../lib/token-bucket.ts'
import type { SessionService } from '../../session/index.ts'
import { HeldRefusals } from './held-refusals.ts'
import type { Route } from './route.ts'

const keyLengthMax = 512
/** A bucket of an organisation holds its requests of so many seconds. */
const burstSeconds = 2

class RateRefusal extends ServiceError {
  /** Whose rate it is. */
  readonly caller: string

  constructor(caller: string, message: string, retryAfterSeconds: number) {
    super('rate_limited', message, { details: { retryAfterSeconds } })
    this.caller = caller
  }
}

interface Rate {
  perSecond: number
  burst: number
}

export interface Caller {
  organisation: Pick<Organisation, 'id'> & Partial<Organisation>
  /** Absent for a token. */
  keyId?: string
  /** Of the operator: it acts for no organisation. */
  isOperator?: boolean
  /** The key; absent for a token and the operator. */
  key?: KnownKey
  /** What the key may do; absent: all. */
  scopes?: readonly Scope[]
  keyExpiresAt?: Date
  /** Of a key with a name prefix. */
  reach?: KeyReach
  /** The key, or the token of a session, as sent. It must not be kept or logged. */
  apiKey: string
  /** Present for a token: its session, and its end. */
  sessionId?: string
  expiresAt?: Date
}

interface AuthenticationDeps {
  organisations: Pick<Organisations, 'find' | 'limitsOf' | 'assertActive'>
  keys: Pick<Keys, 'cached' | 'find' | 'touch'>
  operator: Pick<Operator, 'owns'>
  sessions: Pick<SessionService, 'access'>
}

/** Who acts in a request: a signed URL has no owner. */
export function actingOf(caller: Caller | undefined): Acting {
  if (caller === undefined) return { actor: { type: 'server' }, cause: 'signed_url' }
  const { sessionId, keyId, isOperator, organisation } = caller
  if (isOperator === true) return { actor: { type: 'operator' }, cause: 'request' }
  const actor =
    sessionId === undefined
      ? { type: 'key' as const, ...defined({ id: keyId }) }
      : { type: 'token' as const, id: sessionId }
  return { actor, cause: 'request', orgId: organisation.id }
}

/** Finds the caller of a request and applies the rate limit: per known key or token, else per remote address. */
export class Authentication {
  readonly #deps: AuthenticationDeps
  /** Of addresses and tokens, and the highest of a key. */
  readonly #rate: Rate
  readonly #buckets: TokenBuckets
  readonly #refusals = new HeldRefusals()

  constructor(deps: AuthenticationDeps, rate: Rate) {
    this.#deps = deps
    this.#rate = rate
    this.#buckets = new TokenBuckets(rate)
  }

  /** Throws `unauthorized`, `forbidden`, `organisation_suspended` or `rate_limited`, and what `SessionService.access` throws. Undefined on routes without a key. */
  async admit(request: FastifyRequest, route: Pick<Route, 'auth' | 'token'>): Promise<Caller | undefined> {
    try {
      return await this.#admit(request, route)
    } catch (error) {
      if (error instanceof RateRefusal) await this.#refusals.hold(error.caller)
      throw error
    }
  }

  async #admit(
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
    if (auth === 'operator' || auth === 'key_or_operator') {
      const operator = this.#admitOperator(keyHash, apiKey)
      if (operator !== undefined) return operator
    }
    const key = this.#deps.keys.cached(keyHash) ?? (await this.#lookUp(keyHash, request))
    this.#limitKey(`key:${keyHash}`, key.orgId)
    if (auth === 'operator') throw new ServiceError('forbidden', 'this call is of the operator: send the operator key')
    const { organisations, keys } = this.#deps
    organisations.assertActive(key.orgId)
    keys.touch(key.id)
    const organisation = organisations.find(key.orgId) ?? { id: key.orgId }
    const reach = key.namePrefix === undefined ? undefined : { namePrefix: key.namePrefix, keyId: key.id }
    return {
      organisation,
      apiKey,
      key,
      keyId: key.id,
      ...defined({ scopes: key.scopes, keyExpiresAt: key.expiresAt, reach }),
    }
  }

  #admitOperator(keyHash: string, apiKey: string): Caller | undefined {
    if (this.#deps.operator.owns(keyHash)) {
      this.#limit(`operator:${keyHash}`)
      return { organisation: { id: '' }, apiKey, isOperator: true }
    }
    return undefined
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
      this.#limitOrganisation(orgId)
      this.#deps.organisations.assertActive(orgId)
      return { organisation: { id: orgId }, apiKey: token, sessionId, expiresAt }
    } catch (error) {
      if (isServiceError(error, 'unauthorized')) this.limitAddress(request)
      throw error
    }
  }

  /** The key first, so that the requests that it is refused are not charged to its organisation, whose other keys go on. */
  #limitKey(name: string, orgId: string): void {
    const { requestsPerSecondPerKey } = this.#deps.organisations.limitsOf(orgId)
    const own = { perSecond: requestsPerSecondPerKey, burst: burstSeconds * requestsPerSecondPerKey }
    this.#limit(name, own.perSecond === this.#rate.perSecond ? this.#rate : own)
    this.#limitOrganisation(orgId)
  }

  #limitOrganisation(orgId: string): void {
    const { requestsPerSecond: perSecond } = this.#deps.organisations.limitsOf(orgId)
    this.#limit(
      `organisation:${orgId}`,
      { perSecond, burst: burstSeconds * perSecond },
      'too many requests of the organisation',
    )
  }

  #limit(name: string, rate?: Rate, message = 'too many requests'): void {
    const waitMs = this.#buckets.take(name, rate)
    if (waitMs === 0) return
    throw new RateRefusal(name, message, waitMs / 1000)
  }

  /** Limits the address first, so that guessing keys does not load the store. */
  async #lookUp(keyHash: string, request: FastifyRequest): Promise<KnownKey> {
    this.limitAddress(request)
    const key = await this.#deps.keys.find(keyHash)
    if (key === undefined) throw new ServiceError('unauthorized', 'the API key is not known')
    return key
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
