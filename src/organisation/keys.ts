import { randomBytes } from 'node:crypto'
import { ServiceError } from '../errors.ts'
import type { CreateOptions, Creation } from '../lib/creation.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import { apiKeyPrefix, sha256 } from '../lib/secret.ts'
import type { ApiKey } from './organisation.ts'
import type { Organisations } from './organisations.ts'
import { type Scope, scopes } from './scopes.ts'
import type { OrganisationStore } from './store.ts'

/** Lifetime of a cached key. One that ends through this object leaves the cache at once. */
const cacheMs = 10_000
const cachedKeysMax = 1000
/** How often the last use of a key is written. */
const touchMs = 60_000
const keyPrefixLength = 14
const nameLengthMax = 128
const namePrefixPattern = /^[a-z0-9][a-z0-9-]{0,31}$/

/** Scopes that show or change what the whole organisation has, which no name bounds. */
const wholeScopes: ReadonlySet<Scope> = new Set(['webhook', 'usage', 'secret', 'egress', 'events', 'audit'])

export type KnownKey = Omit<ApiKey, 'keyHash'>

/** The key that makes another; undefined: the operator or the server does. */
export type KeyMaker = KnownKey | undefined

export interface AddKey {
  name?: string
  scopes?: Scope[]
  expiresAt?: Date
  namePrefix?: string
  sandboxesMax?: number
}

interface KeysDeps {
  store: OrganisationStore
  organisations: Organisations
  log: { warn(facts: object, message: string): void }
}

/** The keys of organisations: which there are, whose a secret is, and what one may give to another. */
export class Keys {
  readonly #deps: KeysDeps
  readonly #cache = new Map<string, { key: KnownKey; untilMs: number }>()
  /** When the last use of a key was written, on the monotonic clock. */
  readonly #touchedMs = new Map<string, number>()

  /** Grows with each end of keys: a read that began before one must not be cached after it. */
  #ends = 0

  constructor(deps: KeysDeps) {
    this.#deps = deps
    deps.organisations.subscribe(({ type, orgId }) => {
      if (type === 'deleting' || type === 'removed') this.#forget((key) => key.orgId === orgId)
    })
  }

  /** The key of this secret if it is cached. Expired ones are none. */
  cached(keyHash: string): KnownKey | undefined {
    const entry = this.#cache.get(keyHash)
    if (entry === undefined) return undefined
    if (entry.untilMs > performance.now()) return unexpired(entry.key)
    this.#cache.delete(keyHash)
    return undefined
  }

  /** Undefined for an unknown or expired key. */
  async find(keyHash: string): Promise<KnownKey | undefined> {
    const ends = this.#ends
    const found = await this.#deps.store.apiKeyByHash(keyHash)
    if (found === undefined) return undefined
    if (ends !== this.#ends) return await this.find(keyHash)
    const { keyHash: _keyHash, ...key } = found
    if (this.#cache.size >= cachedKeysMax) this.#cache.clear()
    this.#cache.set(keyHash, { key, untilMs: performance.now() + cacheMs })
    return unexpired(key)
  }

  /** Notes that a key was used; writes it at most once a minute, in the background. */
  touch(keyId: string): void {
    const now = performance.now()
    const touched = this.#touchedMs.get(keyId)
    if (touched !== undefined && now - touched < touchMs) return
    if (this.#touchedMs.size >= cachedKeysMax) this.#touchedMs.clear()
    this.#touchedMs.set(keyId, now)
    const usedAt = new Date()
    this.#deps.store.touchApiKey(keyId, usedAt, new Date(usedAt.getTime() - touchMs)).catch((error: unknown) => {
      this.#deps.log.warn({ err: error, keyId }, 'the last use of a key could not be written')
    })
  }

  /** Newest first. A key that is bound in some way sees itself and those that it has made. */
  async list(orgId: string, by: KeyMaker): Promise<KnownKey[]> {
    const keys = await this.#deps.store.listApiKeys(orgId)
    return seenBy(keys, by).map(({ keyHash: _keyHash, ...key }) => key)
  }

  /** Makes a key, and returns it with its secret. Throws `forbidden` for what the maker does not have itself. */
  async create(
    orgId: string,
    input: AddKey,
    maker: KeyMaker,
    { creation }: CreateOptions = {},
  ): Promise<{ key: KnownKey; secret: string }> {
    const { store, organisations } = this.#deps
    organisations.assertActive(orgId)
    const { name = '', expiresAt, namePrefix, sandboxesMax } = input
    assertField(name.length <= nameLengthMax, 'name', `must have at most ${nameLengthMax} characters`)
    assertField(expiresAt === undefined || expiresAt.getTime() > Date.now(), 'expiresAt', 'must be in the future')
    assertField(
      namePrefix === undefined || namePrefixPattern.test(namePrefix),
      'namePrefix',
      'must be 1 to 32 of `a–z`, `0–9` and `-`, the first no `-`',
    )
    const given = scopesOf(input)
    if (maker !== undefined) assertWithinMaker({ ...input, ...defined({ scopes: given }) }, maker)
    const [madeId] = creation?.made ?? []
    const secret = secretOf(creation)
    const made = madeId === undefined ? undefined : await store.apiKeyByHash(sha256(secret))
    if (made !== undefined) {
      const { keyHash: _keyHash, ...key } = made
      return { key, secret }
    }
    const key: KnownKey = {
      id: creation?.id('key_') ?? newId('key_'),
      orgId,
      keyPrefix: secret.slice(0, keyPrefixLength),
      name,
      isDefault: false,
      createdAt: new Date(),
      ...defined({ scopes: given, expiresAt, namePrefix, sandboxesMax, madeBy: maker?.id }),
    }
    const { keysMax } = organisations.limitsOf(orgId)
    await store.addApiKey({ ...key, keyHash: sha256(secret) }, { keysMax, creation })
    return { key, secret }
  }

  /** Ends a key with those that it has made. Their calls and streams end at once. Throws `not_found`. */
  async delete(orgId: string, keyId: string, by: KeyMaker): Promise<void> {
    const seen = await this.list(orgId, by)
    if (!seen.some(({ id }) => id === keyId)) throw new ServiceError('not_found', `no key ${keyId}`)
    const ended = await this.#deps.store.deleteApiKey(orgId, keyId)
    if (ended.length === 0) throw new ServiceError('not_found', `no key ${keyId}`)
    this.#forget(({ id }) => ended.includes(id))
    for (const id of ended) this.#deps.organisations.announce({ type: 'key_ended', orgId, keyId: id })
  }

  #forget(isEnded: (key: KnownKey) => boolean): void {
    this.#ends += 1
    for (const [hash, { key }] of this.#cache) if (isEnded(key)) this.#cache.delete(hash)
  }
}

/** A repeat of a request with an `Idempotency-Key` makes the same one. */
function secretOf(creation: Creation | undefined): string {
  const bytes =
    creation === undefined ? randomBytes(24) : Buffer.from(creation.secret('API key'), 'base64url').subarray(0, 24)
  return `${apiKeyPrefix}${bytes.toString('hex')}`
}

function isBound({ scopes: own, expiresAt, namePrefix, sandboxesMax }: KnownKey): boolean {
  return [own, expiresAt, namePrefix, sandboxesMax].some((bound) => bound !== undefined)
}

function seenBy<Key extends KnownKey>(keys: readonly Key[], by: KeyMaker): readonly Key[] {
  if (by === undefined || !isBound(by)) return keys
  const seen = new Set([by.id])
  // The oldest first: a key is younger than the one that made it.
  for (const { id, madeBy } of keys.toReversed()) if (madeBy !== undefined && seen.has(madeBy)) seen.add(id)
  return keys.filter(({ id }) => seen.has(id))
}

function unexpired(key: KnownKey): KnownKey | undefined {
  return key.expiresAt === undefined || key.expiresAt.getTime() > Date.now() ? key : undefined
}

/** What a key of this input may do; undefined: all. A name prefix bounds no scope of the whole organisation. */
function scopesOf({ scopes: asked, namePrefix }: AddKey): Scope[] | undefined {
  if (asked !== undefined) {
    assertField(asked.length > 0, 'scopes', 'must name at least one, or be left out for all')
    const whole = namePrefix === undefined ? undefined : asked.find((scope) => wholeScopes.has(scope))
    assertField(
      whole === undefined,
      'scopes',
      `a key with a name prefix cannot have ${whole}, which is of the whole organisation`,
    )
    return [...new Set(asked)]
  }
  return namePrefix === undefined ? undefined : scopes.filter((scope) => !wholeScopes.has(scope))
}

/** No key gives more than it has, or for longer. */
function assertWithinMaker(input: AddKey, maker: KnownKey): void {
  const { scopes: own, expiresAt, namePrefix, sandboxesMax } = maker
  if (own !== undefined) {
    const missing = (input.scopes ?? scopes).filter((scope) => !own.includes(scope))
    assertMayGive(missing.length === 0, 'scopes', `the key that makes it lacks ${missing.join(', ')}`)
  }
  if (expiresAt !== undefined) {
    const isWithin = input.expiresAt !== undefined && input.expiresAt <= expiresAt
    assertMayGive(
      isWithin,
      'expiresAt',
      `must be ${expiresAt.toISOString()} or before, when the key that makes it ends`,
    )
  }
  if (namePrefix !== undefined) {
    const isWithin = input.namePrefix?.startsWith(namePrefix) === true
    assertMayGive(isWithin, 'namePrefix', `must begin with ${namePrefix}, as that of the key that makes it`)
  }
  if (sandboxesMax !== undefined) {
    const isWithin = input.sandboxesMax !== undefined && input.sandboxesMax <= sandboxesMax
    assertMayGive(isWithin, 'sandboxesMax', `must be at most ${sandboxesMax}, as that of the key that makes it`)
  }
}

function assertMayGive(isAllowed: boolean, field: string, rule: string): void {
  if (!isAllowed) throw new ServiceError('forbidden', `${field}: ${rule}`, { details: { field } })
}

function assertField(isRight: boolean, field: string, rule: string): void {
  if (!isRight) throw new ServiceError('invalid_request', `${field}: ${rule}`, { details: { field } })
}
