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
import type { BrowserSessions } from './browser-sessions.ts'
import { HeldRefusals } from './held-refusals.ts'
import type { Route } from './route.ts'

const keyLengthMax = 512
/** Parameters in which a request may show a key or a token. */
const keyParameters = ['api_key', 'token'] as const
const unknownKey = 'the API key is not known'
const endedSession = 'the session of this browser has ended, or its key has: sign in again'
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
  /** The end of the key, or of the browser's session that stands for it. */
  keyExpiresAt?: Date
  /** Of a key with a name prefix. */
  reach?: KeyReach
  /** The key or the token of a session as sent; of a browser's session its `credential`. It must not be kept or logged. */
  credential: string
  /** Present for a token: its session, and its end. */
  sessionId?: string
  expiresAt?: Date
}

interface AuthenticationDeps {
  organisations: Pick<Organisations, 'find' | 'limitsOf' | 'assertActive'>
  keys: Pick<Keys, 'cached' | 'find' | 'touch'>
  operator: Pick<Operator, 'owns'>
  sessions: Pick<SessionService, 'access'>
  browserSessions: Pick<BrowserSessions, 'find' | 'assertOwnPage'>
}

type Way = Pick<Route, 'auth' | 'token' | 'takesCookie'>

/** A key that a request has sent, or that its cookie stands for. */
interface Shown {
  keyHash: string
  credential: string
  /** Of a cookie. */
  endsAt?: Date
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

/** The caller that has a key. Undefined for an unknown or expired key. */
export async function callerOf(
  {
    operator,
    keys,
    organisations,
  }: Pick<AuthenticationDeps, 'operator' | 'organisations'> & { keys: Pick<Keys, 'cached' | 'find'> },
  shown: Shown,
): Promise<Caller | undefined> {
  if (operator.owns(shown.keyHash)) return operatorBy(shown)
  const key = keys.cached(shown.keyHash) ?? (await keys.find(shown.keyHash))
  return key && holderOf(key, organisations, shown)
}

function operatorBy({ credential, endsAt }: Shown): Caller {
  return { organisation: { id: '' }, credential, isOperator: true, ...defined({ keyExpiresAt: endsAt }) }
}

function holderOf(key: KnownKey, organisations: Pick<Organisations, 'find'>, { credential, endsAt }: Shown): Caller {
  const organisation = organisations.find(key.orgId) ?? { id: key.orgId }
  const reach = key.namePrefix === undefined ? undefined : { namePrefix: key.namePrefix, keyId: key.id }
  const [keyExpiresAt] = [key.expiresAt, endsAt]
    .flatMap((end) => end ?? [])
    .toSorted((one, other) => Number(one) - Number(other))
  return { organisation, credential, key, keyId: key.id, ...defined({ scopes: key.scopes, keyExpiresAt, reach }) }
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
  async admit(request: FastifyRequest, route: Way): Promise<Caller | undefined> {
    try {
      return await this.#admit(request, route)
    } catch (error) {
      if (error instanceof RateRefusal) await this.#refusals.hold(error.caller)
      throw error
    }
  }

  async #admit(request: FastifyRequest, route: Way): Promise<Caller | undefined> {
    const { auth, token: use } = route
    if (auth === 'probe') return undefined
    if (auth === 'none' || auth === 'signed') {
      this.limitAddress(request)
      return undefined
    }
    const apiKey = sentKey(request, auth === 'key_or_query')
    const token = apiKey === undefined && use !== undefined ? inQuery(request, 'token') : undefined
    if (token !== undefined && use !== undefined) return await this.#admitToken(request, token, use)
    const shown = apiKey === undefined ? this.#browserSession(request, route) : this.#sent(request, apiKey)
    if (auth === 'operator' || auth === 'key_or_operator') {
      const operator = this.#admitOperator(shown)
      if (operator !== undefined) return operator
    }
    const key = this.#deps.keys.cached(shown.keyHash) ?? (await this.#lookUp(shown, request))
    this.#limitKey(`key:${shown.keyHash}`, key.orgId)
    if (auth === 'operator') throw new ServiceError('forbidden', 'this call is of the operator: send the operator key')
    const { organisations, keys } = this.#deps
    organisations.assertActive(key.orgId)
    keys.touch(key.id)
    return holderOf(key, organisations, shown)
  }

  #sent(request: FastifyRequest, apiKey: string): Shown {
    if (apiKey.length > keyLengthMax) this.#refuse(request, unknownKey)
    return { keyHash: sha256(apiKey), credential: apiKey }
  }

  /** The key that the cookie of a browser stands for, where nothing else is shown. */
  #browserSession(request: FastifyRequest, { takesCookie = true }: Way): Shown {
    const isAlone = keyParameters.every((name) => inQuery(request, name) === undefined)
    const session = takesCookie && isAlone ? this.#deps.browserSessions.find(request) : undefined
    if (session === undefined) this.#refuse(request, 'an API key is required')
    if (session === 'ended') this.#refuse(request, endedSession)
    try {
      this.#deps.browserSessions.assertOwnPage(request)
    } catch (error) {
      this.limitAddress(request)
      throw error
    }
    return session
  }

  #refuse(request: FastifyRequest, message: string): never {
    this.limitAddress(request)
    throw new ServiceError('unauthorized', message)
  }

  #admitOperator(shown: Shown): Caller | undefined {
    if (!this.#deps.operator.owns(shown.keyHash)) return undefined
    this.#limit(`operator:${shown.keyHash}`)
    return operatorBy(shown)
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
      return { organisation: { id: orgId }, credential: token, sessionId, expiresAt }
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
  async #lookUp({ keyHash, endsAt }: Shown, request: FastifyRequest): Promise<KnownKey> {
    this.limitAddress(request)
    const key = await this.#deps.keys.find(keyHash)
    if (key === undefined) throw new ServiceError('unauthorized', endsAt === undefined ? unknownKey : endedSession)
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
