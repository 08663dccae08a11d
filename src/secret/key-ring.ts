import { ServiceError } from '../errors.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import { singleFlight } from '../lib/async/single-flight.ts'
import type { SealOptions } from '../lib/sealed.ts'
import { type KeyFile, keyFileName } from './key-file.ts'
import type { SealingKey } from './sealing-key.ts'

interface KeyRingDeps {
  /** Of `ATOLL_SECRETS_KEY`; empty: the keys are those of the file. */
  configured: readonly SealingKey[]
  file: KeyFile
  /** Ids of the keys that rows are sealed with. */
  keysInUse: () => Promise<string[]>
  now?: () => number
}

/** What was sealed may be on its way to its row for so long. */
const inFlightMs = 10 * 60_000

/**
 * The keys of secrets. A sealed text is the id of its key, a dot, and what `Sealer` makes: AES-256-GCM under a key that is derived for its owner
 * and purpose. The first key seals, all open; with keys of the environment those of the file still open. The file is made when there is nothing
 * to seal with and nothing that a lost key has sealed.
 */
export class KeyRing {
  readonly #deps: KeyRingDeps
  readonly #now: () => number
  /** Undefined until they are read. */
  #keys: readonly SealingKey[] | undefined
  /** When each key has sealed last. */
  readonly #sealedAt = new Map<string, number>()
  #holds = 0
  /** Changes of the file come one after the other. */
  readonly #changes = new KeyedMutex()
  readonly #load = singleFlight(async () => (this.#keys = await this.#read()))
  readonly #loadOrMake = singleFlight(async () => {
    const keys = await this.#load()
    if (keys.length > 0) return keys
    const used = await this.#deps.keysInUse()
    if (used.length > 0) throw missing(used)
    await this.#change(() => this.#deps.file.make())
    return await this.#load()
  })

  constructor(deps: KeyRingDeps) {
    this.#deps = deps
    this.#now = deps.now ?? Date.now
  }

  /** Throws `unavailable` when there is no key, and naming the setting. */
  async seal(text: string, options: SealOptions): Promise<string> {
    const { id, sealer } = await this.first()
    this.#sealedAt.set(id, this.#now())
    return `${id}.${sealer.seal(text, options)}`
  }

  /** Throws `unavailable` when the key is missing or is another, and naming the setting. */
  async open(sealed: string, options: SealOptions): Promise<string> {
    const id = keyIdOf(sealed)
    const isIt = (key: SealingKey) => key.id === id
    // An operator may have put the key back meanwhile.
    const key = (this.#keys ?? (await this.#load())).find(isIt) ?? (await this.#load()).find(isIt)
    if (key === undefined) throw missing([id])
    const text = key.sealer.open(sealed.slice(id.length + 1), options)
    if (text !== undefined) return text
    throw new ServiceError('unavailable', 'a stored secret is damaged, or was moved to another owner: set it again')
  }

  /** The key that seals. */
  async first(): Promise<SealingKey> {
    const [key] = this.#keys?.length ? this.#keys : await this.#loadOrMake()
    if (key === undefined) throw new Error('there is no key after one was made')
    return key
  }

  /** Adds a key that seals from now on, where keys come from the file. Returns the one that seals. */
  async renew(): Promise<SealingKey> {
    await this.#load()
    const former = await this.first()
    if (this.#deps.configured.length > 0) return former
    const { file } = this.#deps
    await this.#change(async () => await file.addFirst(await file.read()))
    await this.#load()
    return await this.first()
  }

  /** No key goes from the file until the hold is disposed of: a backup that has the rows takes the file later. */
  hold(): Disposable {
    this.#holds += 1
    let isHeld = true
    return {
      [Symbol.dispose]: () => {
        if (isHeld) this.#holds -= 1
        isHeld = false
      },
    }
  }

  /** Removes keys behind the first from the file, when no row and no text on its way to one needs them. Returns how many are left behind it. */
  async removeUnused(): Promise<number> {
    return await this.#change(async () => {
      const { file, configured, keysInUse } = this.#deps
      if (configured.length > 0) return 0
      const keys = await file.read()
      if (keys.length < 2 || this.#holds > 0) return Math.max(keys.length - 1, 0)
      const recent = this.#now() - inFlightMs
      const used = new Set(await keysInUse())
      const kept = keys.filter(({ id }, index) => index === 0 || used.has(id) || (this.#sealedAt.get(id) ?? 0) > recent)
      // A backup may have begun meanwhile.
      if (kept.length === keys.length || this.#holds > 0) return keys.length - 1
      await file.keepOnly(kept)
      await this.#load()
      return kept.length - 1
    })
  }

  async #change<Result>(work: () => Promise<Result>): Promise<Result> {
    return await this.#changes.run('file', work)
  }

  async #read(): Promise<SealingKey[]> {
    const { configured, file } = this.#deps
    if (configured.length === 0) return await file.read()
    // A broken file must not close what the environment opens.
    const others = await file.read().catch(() => [])
    return [...configured, ...others]
  }
}

export function keyIdOf(sealed: string): string {
  return sealed.slice(0, sealed.indexOf('.'))
}

function missing(ids: readonly string[]): ServiceError {
  const keys = `${ids.length === 1 ? 'key' : 'keys'} ${ids.slice(0, 5).join(', ')}`
  const where = `neither ATOLL_SECRETS_KEY nor ${keyFileName} in the data directory has`
  return new ServiceError('unavailable', `the secrets cannot be used: they are sealed with ${keys}, which ${where}`)
}
