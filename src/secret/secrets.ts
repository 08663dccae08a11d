import { ServiceError } from '../errors.ts'
import { singleFlight } from '../lib/async/single-flight.ts'
import type { CreateOptions } from '../lib/creation.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import type { Log } from '../lib/log.ts'
import { type Chain, chainOf, type ChainOf } from './chain.ts'
import { type ChangeListener, Changes, type Refresh } from './changes.ts'
import {
  assertSecretName,
  assertStoreName,
  invalid,
  isSecretName,
  readHosts,
  readSecret,
  type SecretInput,
} from './input.ts'
import type { KeyRing } from './key-ring.ts'
import { defaultSecretLimits, type SecretLimits } from './limits.ts'
import { rotate, type Rotation } from './rotation.ts'
import {
  authorityPurpose,
  type ChainSecret,
  purposeOf,
  type ResolvedSecret,
  type SealedSecret,
  type Secret,
  type Store,
} from './secret.ts'
import { newPlaceholder } from './shape.ts'
import type { SecretStorePort } from './store.ts'

export interface NewStore {
  name: string
  egressAllowlist?: readonly string[] | undefined
  isDefault?: boolean | undefined
}

type StoreInput = { [Key in keyof NewStore]?: NewStore[Key] | undefined }

interface SecretsDeps {
  store: SecretStorePort
  ring: KeyRing
  log: Log
  limits?: Partial<SecretLimits>
  /** How long a change waits for those who are told. */
  toldMs?: number
}

const storeIdPattern = /^ss-[a-z0-9]{16}$/

/**
 * Secret stores of organisations. A value is sealed in its row, opened for `openChain` alone, and in no answer, no error and no log. Who has
 * sandboxes listens by `onChange`: a change is answered when they are refreshed, or after a time.
 */
export class Secrets {
  readonly #store: SecretStorePort
  readonly #ring: KeyRing
  readonly #limits: SecretLimits
  readonly #changes: Changes
  readonly #rotate: () => Promise<Rotation>

  constructor({ store, ring, log, limits, toldMs }: SecretsDeps) {
    this.#store = store
    this.#ring = ring
    this.#limits = { ...defaultSecretLimits, ...limits }
    this.#changes = new Changes(log, defined({ toldMs }))
    this.#rotate = singleFlight(async () => {
      const rotation = await rotate(ring, store)
      log.info(rotation, 'the key of secrets is rotated')
      return rotation
    })
  }

  // Stores

  async create(orgId: string, input: NewStore, { creation }: CreateOptions = {}): Promise<Store> {
    const { name, egressAllowlist = [], isDefault = false } = input
    assertStoreName(name)
    const hosts = this.#readAllowlist(egressAllowlist)
    const [madeId] = creation?.made ?? []
    if (madeId !== undefined) return await this.read(orgId, madeId)
    const now = new Date()
    const id = creation?.id('ss-') ?? newId('ss-')
    const made = { id, orgId, name, egressAllowlist: hosts, isDefault, createdAt: now, updatedAt: now }
    await this.#store.insertStore(made, { storesMax: this.#limits.storesMax, creation })
    // One that applies to all is in force at once.
    if (isDefault) await this.#changes.tell([made])
    return made
  }

  /** By name. */
  async list(orgId: string): Promise<Store[]> {
    return await this.#store.listStores(orgId)
  }

  /** Throws `not_found`, and `invalid_request` for what is no id. */
  async read(orgId: string, id: string): Promise<Store> {
    assertStoreId(id)
    const found = await this.#store.store(orgId, id)
    if (found === undefined) throw unknownStore(id)
    return found
  }

  /** What is left out stays. */
  async update(orgId: string, id: string, change: StoreInput): Promise<Store> {
    assertStoreId(id)
    const { name, egressAllowlist: hosts, isDefault } = change
    if (name !== undefined) assertStoreName(name)
    const egressAllowlist = hosts && this.#readAllowlist(hosts)
    const set = { ...defined({ name, egressAllowlist, isDefault }), updatedAt: new Date() }
    const updated = await this.#store.updateStore(orgId, id, set)
    if (updated === undefined) throw unknownStore(id)
    const { before, after } = updated
    const isRenamed = before.name !== after.name
    const concerned = { ...after, isDefault: after.isDefault || before.isDefault }
    await this.#changes.tell([concerned, ...(isRenamed ? [{ ...concerned, name: before.name }] : [])])
    return after
  }

  /** With its secrets, which sandboxes that run lose. Throws `not_found`. */
  async remove(orgId: string, id: string): Promise<void> {
    assertStoreId(id)
    const removed = await this.#store.deleteStore(orgId, id)
    if (removed === undefined) throw unknownStore(id)
    await this.#changes.tell([removed])
  }

  // Secrets

  /** Replaces value and rules of an earlier one. */
  async set(orgId: string, storeId: string, name: string, input: SecretInput): Promise<Refresh> {
    assertSecretName(name)
    const store = await this.read(orgId, storeId)
    const secret = await this.#sealed(orgId, storeId, name, input)
    await this.#store.putSecret(secret, { secretsMax: this.#limits.secretsPerStoreMax })
    return await this.#changes.tell([store])
  }

  /** By name. Throws `not_found`. */
  async listSecrets(orgId: string, storeId: string): Promise<Secret[]> {
    await this.read(orgId, storeId)
    return (await this.#store.listSecrets(storeId)).map(({ sealedValue: _sealed, ...secret }) => secret)
  }

  /** Sandboxes that run lose it. Throws `not_found`. */
  async removeSecret(orgId: string, storeId: string, name: string): Promise<void> {
    const store = await this.read(orgId, storeId)
    if (!isSecretName(name) || !(await this.#store.deleteSecret(storeId, name)))
      throw new ServiceError('not_found', `the store has no secret ${JSON.stringify(name.slice(0, 64))}`)
    await this.#changes.tell([store])
  }

  // For sandboxes

  /** What a sandbox has, without values. Needs no key. */
  async chain(of: ChainOf): Promise<Chain<ChainSecret>> {
    const { secrets, ...chain } = await this.#chain(of)
    return { ...chain, secrets: secrets.map(({ secret }) => secret) }
  }

  /** With values. Throws `unavailable` when the key that opens them is missing. */
  async openChain(of: ChainOf): Promise<Chain<ResolvedSecret>> {
    const { secrets, ...chain } = await this.#chain(of)
    const opened = secrets.map(async ({ secret, sealed }): Promise<ResolvedSecret> => {
      const value = await this.#ring.open(sealed.sealedValue, { orgId: of.orgId, purpose: purposeOf(sealed) })
      return { ...secret, value }
    })
    return { ...chain, secrets: await Promise.all(opened) }
  }

  async hasDefaults(orgId: string): Promise<boolean> {
    return await this.#store.hasDefaults(orgId)
  }

  /** Throws what `putInline` would throw for these. */
  assertInline(secrets: Readonly<Record<string, SecretInput>>, field = 'secrets'): void {
    const { secretsPerStoreMax } = this.#limits
    const names = Object.keys(secrets)
    if (names.length > secretsPerStoreMax) throw invalid(field, `must be at most ${secretsPerStoreMax}`)
    for (const [name, input] of Object.entries(secrets)) {
      assertSecretName(name, `${field}.${name.slice(0, 64)}`)
      readSecret(name, input, this.#limits, `${field}.${name}.`)
    }
  }

  /** Keeps the secrets of one creation under an id of the caller, in place of those that it had. */
  async putInline(orgId: string, hiddenId: string, secrets: Readonly<Record<string, SecretInput>>): Promise<void> {
    this.assertInline(secrets)
    const now = new Date()
    const id = newId('ss-')
    const hidden = { id, orgId, name: '', egressAllowlist: [], isDefault: false, createdAt: now, updatedAt: now }
    const sealed = Object.entries(secrets).map(([name, input]) => this.#sealed(orgId, id, name, input))
    await this.#store.putHidden(hidden, hiddenId, await Promise.all(sealed))
  }

  async removeInline(orgId: string, hiddenId: string): Promise<void> {
    await this.#store.deleteHidden(orgId, hiddenId)
  }

  newPlaceholder(shape: string): string {
    return newPlaceholder(shape)
  }

  /** Seals the key of a certificate authority of the organisation. */
  async seal(orgId: string, text: string): Promise<string> {
    return await this.#ring.seal(text, { orgId, purpose: authorityPurpose })
  }

  async unseal(orgId: string, sealed: string): Promise<string> {
    return await this.#ring.open(sealed, { orgId, purpose: authorityPurpose })
  }

  /** Called after each change with the store that has changed. Returns what ends it. */
  onChange(listener: ChangeListener): () => void {
    return this.#changes.listen(listener)
  }

  // For the operator

  /** Seals all with another key, while all is in use. Calls that come meanwhile share it. */
  async rotateKey(): Promise<Rotation> {
    return await this.#rotate()
  }

  /** Removes keys from the file that nothing needs. */
  async removeUnusedKeys(): Promise<void> {
    await this.#ring.removeUnused()
  }

  /** Keeps the keys of the file until it is disposed of. */
  holdKeys(): Disposable {
    return this.#ring.hold()
  }

  async #chain(of: ChainOf) {
    const stores = await this.#store.chainStores(of.orgId, { names: of.stores, hidden: of.inline })
    return chainOf(of, stores)
  }

  #readAllowlist(hosts: readonly string[]): string[] {
    return readHosts(hosts, 'egressAllowlist', this.#limits.egressHostsMax)
  }

  async #sealed(orgId: string, storeId: string, name: string, input: SecretInput): Promise<SealedSecret> {
    const { value, rules } = readSecret(name, input, this.#limits)
    const now = new Date()
    const sealedValue = await this.#ring.seal(value, { orgId, purpose: purposeOf({ storeId, name }) })
    return { id: newId('ss-'), storeId, name, sealedValue, ...rules, createdAt: now, updatedAt: now }
  }
}

function assertStoreId(id: string): void {
  if (!storeIdPattern.test(id))
    throw invalid('storeId', 'must be the id of a store, ss-…; a list of all stores has their ids')
}

function unknownStore(id: string): ServiceError {
  return new ServiceError('not_found', `no secret store ${id}`)
}
