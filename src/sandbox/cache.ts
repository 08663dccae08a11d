import { createHash } from 'node:crypto'
import { ServiceError } from '../errors.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import { type Release, Semaphore } from '../lib/async/semaphore.ts'
import type { Log } from '../lib/log.ts'
import type { CacheState, MountOwner, RuntimeDriver, StepMounts } from './ports/runtime-driver.ts'

/** `shared`: several steps have it at once. `locked`: a step waits until no other has it. `private`: a step gets one that no other has. */
export type CacheSharing = 'shared' | 'locked' | 'private'

/** A folder that is kept between builds for one key of an organisation. */
export interface Cache {
  id: string
  sizeBytes: number
  lastUsedAt: Date
}

export interface CacheService {
  /** The latest used first. */
  list(orgId: string): Promise<Cache[]>
  /** Throws `not_found`, and `conflict` while a step has it. */
  remove(orgId: string, id: string): Promise<void>
  /** Removes all that no step has, and returns them. */
  removeAll(orgId: string): Promise<Cache[]>
}

/** A cache for one step. */
export interface CacheLease {
  id: string
  isFull(): Promise<boolean>
  /** A repeat is harmless. */
  release(): Promise<void>
}

interface CachesContext {
  driver: Pick<RuntimeDriver, 'stepMounts'>
  /** Most that the caches of one organisation hold together. */
  cacheMb: number
  log: Log
}

const mebibyte = 1024 ** 2
/** Steps that share a cache. */
const sharersMax = 1000
/** Caches of one organisation: a key may be anything. */
const cachesMax = 256
/** The share of the bound that a step finds free, or the oldest caches go. */
const freeShare = 0.25
/** A cache with less space than this left is full: a file system keeps some for itself. */
const fullBytes = mebibyte

/**
 * The caches of builds. All that is known of them is in their folders: the id has the organisation and the key, and the driver says when one
 * was used. The caches of an organisation that steps have share what its bound leaves, so that all together never pass it.
 */
export class Caches implements CacheService {
  readonly #context: CachesContext
  /** By cache: those who have it or wait for it. A step that has it alone takes all permits. */
  readonly #leases = new Semaphore({ permitsPerKey: sharersMax })
  /** By the prefix of an organisation. */
  readonly #changes = new KeyedMutex()
  /** The limits in force of those that steps have. */
  readonly #limits = new Map<string, number>()

  constructor(context: CachesContext) {
    this.#context = context
  }

  /** Makes the cache where it is missing, with this owner. Throws `no_capacity`, and the reason of the signal that ends a wait. */
  async lease(
    orgId: string,
    { key, sharing, owner }: { key: string; sharing: CacheSharing; owner: MountOwner },
    signal?: AbortSignal,
  ): Promise<CacheLease> {
    const { id, release } = await this.#acquire(orgId, key, sharing, signal)
    const giveBack = async () => {
      release()
      // Whether others get more meanwhile is of no concern to this caller.
      await this.#changes
        .run(prefixOf(orgId), () => this.#share(orgId))
        .catch((error: unknown) =>
          this.#context.log.warn({ err: error, orgId }, 'caches keep the limits that they had'),
        )
    }
    try {
      await this.#changes.run(prefixOf(orgId), async () => {
        await this.#makeRoom(orgId, id)
        await this.#mounts.makeCache(id, owner)
        await this.#share(orgId)
      })
    } catch (error) {
      await giveBack()
      throw error
    }
    return { id, release: giveBack, isFull: () => this.#isFull(id) }
  }

  async list(orgId: string): Promise<Cache[]> {
    if (this.#context.driver.stepMounts === undefined) return []
    const found = await this.#read(orgId)
    return found.map(({ id, usedBytes, lastUsedAt }) => ({ id, sizeBytes: usedBytes, lastUsedAt })).toReversed()
  }

  async remove(orgId: string, id: string): Promise<void> {
    await this.#changes.run(prefixOf(orgId), async () => {
      if (!(await this.list(orgId)).some((cache) => cache.id === id)) {
        throw new ServiceError('not_found', `no cache ${JSON.stringify(id.slice(0, 80))}`)
      }
      if (this.#isUsed(id)) throw new ServiceError('conflict', `a build has cache ${id}`)
      await this.#remove(id)
    })
  }

  async removeAll(orgId: string): Promise<Cache[]> {
    return await this.#changes.run(prefixOf(orgId), async () => {
      const removed = (await this.list(orgId)).filter(({ id }) => !this.#isUsed(id))
      for (const { id } of removed) await this.#remove(id)
      return removed
    })
  }

  /** Of all organisations. */
  async removeUnused(usedBefore: Date, signal: AbortSignal): Promise<void> {
    if (this.#context.driver.stepMounts === undefined) return
    for (const { id, lastUsedAt } of await this.#mounts.listCaches(idPrefix)) {
      signal.throwIfAborted()
      if (lastUsedAt >= usedBefore) continue
      await this.#changes.run(id.slice(0, prefixOf('').length), async () => {
        if (!this.#isUsed(id)) await this.#remove(id)
      })
    }
  }

  get #mounts(): StepMounts {
    return this.#context.driver.stepMounts ?? cannot()
  }

  async #acquire(
    orgId: string,
    key: string,
    sharing: CacheSharing,
    signal?: AbortSignal,
  ): Promise<{ id: string; release: Release }> {
    if (sharing !== 'private') {
      const id = idOf(orgId, key, 0)
      const weight = sharing === 'shared' ? 1 : sharersMax
      return { id, release: await this.#leases.acquire({ key: id, weight, signal }) }
    }
    for (let number = 0; ; number += 1) {
      const id = idOf(orgId, key, number)
      const release = this.#leases.tryAcquire({ key: id, weight: sharersMax })
      if (release !== undefined) return { id, release }
    }
  }

  #isUsed(id: string): boolean {
    return this.#leases.users(id) > 0
  }

  /** The oldest use first. */
  async #read(orgId: string): Promise<CacheState[]> {
    const found = await this.#mounts.listCaches(prefixOf(orgId))
    return found.toSorted((one, other) => one.lastUsedAt.getTime() - other.lastUsedAt.getTime())
  }

  /** Removes the oldest that nobody has, until the next user has a share of the bound. For the holder of the lock, as the next ones. */
  async #makeRoom(orgId: string, wanted: string): Promise<void> {
    const found = await this.#read(orgId)
    let count = found.length + (found.some(({ id }) => id === wanted) ? 0 : 1)
    let bytes = found.reduce((sum, { usedBytes }) => sum + usedBytes, 0)
    const bytesMax = this.#context.cacheMb * mebibyte * (1 - freeShare)
    for (const { id, usedBytes } of found.filter((cache) => !this.#isUsed(cache.id))) {
      if (count <= cachesMax && bytes <= bytesMax) return
      await this.#remove(id)
      count -= 1
      bytes -= usedBytes
    }
    if (count > cachesMax) throw new ServiceError('conflict', `the builds of the organisation use ${cachesMax} caches`)
  }

  /** Divides what the bound leaves among those that steps have. */
  async #share(orgId: string): Promise<void> {
    const found = await this.#read(orgId)
    const bytes = found.reduce((sum, { usedBytes }) => sum + usedBytes, 0)
    const free = Math.max(0, this.#context.cacheMb * mebibyte - bytes)
    const used = found.filter(({ id }) => this.#isUsed(id))
    for (const { id, usedBytes } of used) {
      const limit = usedBytes + Math.floor(free / used.length)
      await this.#mounts.limitCache(id, limit)
      this.#limits.set(id, limit)
    }
    for (const { id } of found) if (!this.#isUsed(id)) this.#limits.delete(id)
  }

  async #isFull(id: string): Promise<boolean> {
    const limit = this.#limits.get(id)
    const found = (await this.#mounts.listCaches(id)).find((cache) => cache.id === id)
    return limit !== undefined && found !== undefined && found.usedBytes + fullBytes >= limit
  }

  async #remove(id: string): Promise<void> {
    await this.#mounts.removeCache(id)
    this.#limits.delete(id)
  }
}

const idPrefix = 'ca-'

export function cannot(): never {
  throw new ServiceError('not_implemented', 'this runtime mounts nothing for a step of a build')
}

function prefixOf(orgId: string): string {
  return `${idPrefix}${digits(orgId, 16)}-`
}

function idOf(orgId: string, key: string, number: number): string {
  return `${prefixOf(orgId)}${digits(key, 20)}-${number}`
}

function digits(text: string, count: number): string {
  return createHash('sha256').update(text).digest('hex').slice(0, count)
}
