import { ServiceError } from '../../src/errors.ts'
import type { AttachedMount, CacheState, MountOwner, MountSource, StepMounts } from '../../src/sandbox/index.ts'

interface FakeMount {
  target: string
  source: MountSource
  isReadOnly: boolean
}

/** Mounts in memory, by the rules of the port. Tests say how large caches seem to be, and how old. */
export class FakeStepMounts implements StepMounts {
  readonly caches = new Map<string, CacheState & { owner: MountOwner; limitBytes?: number }>()
  /** By sandbox, in the order of their attachment. */
  readonly mounted = new Map<string, FakeMount[]>()
  readonly #isRunning: (sandboxId: string) => boolean

  constructor(isRunning: (sandboxId: string) => boolean) {
    this.#isRunning = isRunning
  }

  async attach(sandboxId: string, target: string, source: MountSource): Promise<AttachedMount> {
    if (!this.#isRunning(sandboxId)) throw new ServiceError('unavailable', `sandbox ${sandboxId} does not run`)
    if (/^\/(?:$|(?:proc|sys|dev|\.atoll)(?:\/|$))/.test(target)) {
      throw new ServiceError('invalid_request', `${target} is, or leads to, a folder of the runtime`)
    }
    if (source.type === 'cache') {
      const cache = this.caches.get(source.id)
      if (cache === undefined) throw new ServiceError('conflict', 'the cache is gone')
      cache.lastUsedAt = new Date()
    }
    const mount = { target, source, isReadOnly: source.type === 'secret' }
    this.mounted.set(sandboxId, [...(this.mounted.get(sandboxId) ?? []), mount])
    return {
      setReadOnly: async () => {
        mount.isReadOnly = true
      },
      detach: async () => {
        const left = (this.mounted.get(sandboxId) ?? []).filter((other) => other !== mount)
        if (left.length === 0) this.mounted.delete(sandboxId)
        else this.mounted.set(sandboxId, left)
      },
    }
  }

  async endProcesses(): Promise<void> {}

  async makeCache(id: string, owner: MountOwner): Promise<void> {
    if (!this.caches.has(id)) this.caches.set(id, { id, owner, usedBytes: 4096, lastUsedAt: new Date() })
  }

  async limitCache(id: string, limitBytes: number): Promise<void> {
    Object.assign(this.caches.get(id)!, { limitBytes })
  }

  async listCaches(prefix: string): Promise<CacheState[]> {
    const found = [...this.caches.values()].filter(({ id }) => id.startsWith(prefix))
    return found.map(({ id, usedBytes, lastUsedAt }) => ({ id, usedBytes, lastUsedAt }))
  }

  async removeCache(id: string): Promise<void> {
    const mounts = [...this.mounted.values()].flat()
    if (mounts.some(({ source }) => source.type === 'cache' && source.id === id)) {
      throw new ServiceError('conflict', `cache ${id} is in use`)
    }
    this.caches.delete(id)
  }

  /** Throws what a driver throws that would save this sandbox now. */
  assertNone(sandboxId: string): void {
    const [first] = this.mounted.get(sandboxId) ?? []
    if (first !== undefined) throw new ServiceError('conflict', `a step of a build has ${first.target} mounted`)
  }
}
