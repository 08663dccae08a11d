import { posix } from 'node:path'
import { ServiceError } from '../errors.ts'
import { defined } from '../lib/defined.ts'
import { type CacheLease, type Caches, type CacheSharing, cannot } from './cache.ts'
import { assertInput, assertInteger } from './input.ts'
import type { Lifecycle } from './lifecycle.ts'
import type { MountOwner, MountSource, RuntimeDriver } from './ports/runtime-driver.ts'
import type { Sandbox } from './sandbox.ts'

/** What a step of a build has mounted. `target` is an absolute path inside. */
export type StepMount =
  /** `sharing` is `shared` by default. Mode and owner are those of a new one: by default 0755, of root. */
  | ({ type: 'cache'; key: string; target: string; readOnly?: boolean; sharing?: CacheSharing } & Partial<MountOwner>)
  /** Bounded by the memory of the sandbox in any case. */
  | { type: 'tmpfs'; target: string; sizeBytes?: number }
  /** An empty folder on disk, as large as the disk of the sandbox. */
  | { type: 'scratch'; target: string }
  /** A file, which is read-only; with a mode that has `x` a program. Default mode: 0400, of root. */
  | ({ type: 'secret'; target: string; content: Uint8Array } & Partial<MountOwner>)

/** Its disposal detaches it. Detach mounts in the reverse of the order in which they were attached. */
export interface Mounted extends AsyncDisposable {
  /** Harmless to repeat. The sandbox may have ended. */
  detach(): Promise<void>
  /** Whether it is a cache without space, as far as is known: the reason of a failed step. */
  isFull(): Promise<boolean>
}

export interface Scratch extends Mounted {
  /** Throws `conflict` while a file of it is open for writing. */
  setReadOnly(): Promise<void>
  /** Mounts a file or folder of the scratch folder, by its path in it, on another target too: the source of a bind mount. Detach it first. */
  show(path: string, target: string, options?: { readOnly?: boolean }): Promise<Mounted>
}

export interface MountService {
  /**
   * Attach the mounts of a step by target, as BuildKit does: one within another comes after it. With `signal` a wait for a locked cache
   * ends. Throws as `StepMounts.attach`, and `not_implemented` where the driver cannot.
   */
  attach(
    orgId: string,
    sandboxId: string,
    mount: StepMount & { type: 'scratch' },
    signal?: AbortSignal,
  ): Promise<Scratch>
  attach(orgId: string, sandboxId: string, mount: StepMount, signal?: AbortSignal): Promise<Mounted>
  /** Kills what the step has left running, before its mounts are detached. Where the driver cannot, it runs on. Throws `unavailable`. */
  endProcesses(orgId: string, sandboxId: string): Promise<void>
}

const mebibyte = 1024 ** 2
/** A frame for hostd has twice as much. */
const secretBytesMax = 1024 * 1024
const pathBytesMax = 4095
const keyBytesMax = 4096
const idMax = 65_535
const mountsMax = 200

interface MountsContext {
  lifecycle: Pick<Lifecycle, 'use'>
  driver: Pick<RuntimeDriver, 'stepMounts'>
  caches: Pick<Caches, 'lease'>
}

/** Mounts in running sandboxes for one step of a build each. */
export class Mounts implements MountService {
  readonly #context: MountsContext
  /** By sandbox, what it has mounted; of a cache the lease. */
  readonly #held = new Map<string, Set<{ lease?: CacheLease }>>()

  constructor(context: MountsContext) {
    this.#context = context
  }

  async attach(orgId: string, sandboxId: string, mount: StepMount, signal?: AbortSignal): Promise<Scratch> {
    const { lifecycle, caches } = this.#context
    const target = targetOf(mount.target)
    assertMount(mount)
    const lease = mount.type === 'cache' ? await caches.lease(orgId, wantedCache(mount), signal) : undefined
    try {
      return await lifecycle.use(orgId, sandboxId, async (_, sandbox) => {
        signal?.throwIfAborted()
        return await this.#attach(sandboxId, target, sourceOf(mount, sandbox, lease), lease)
      })
    } catch (error) {
      await lease?.release()
      throw error
    }
  }

  async endProcesses(orgId: string, sandboxId: string): Promise<void> {
    const { lifecycle, driver } = this.#context
    await lifecycle.use(orgId, sandboxId, async () => await driver.stepMounts?.endProcesses(sandboxId))
  }

  /** Gives back what a sandbox has had that is gone. */
  async release(sandboxId: string): Promise<void> {
    const held = this.#held.get(sandboxId) ?? []
    this.#held.delete(sandboxId)
    for (const { lease } of held) await lease?.release()
  }

  async #attach(sandboxId: string, target: string, source: MountSource, lease?: CacheLease): Promise<Scratch> {
    const held = this.#held.get(sandboxId) ?? new Set()
    if (held.size >= mountsMax) throw new ServiceError('conflict', `a step has at most ${mountsMax} mounts`)
    const mounts = this.#context.driver.stepMounts ?? cannot()
    const attached = await mounts.attach(sandboxId, target, source)
    const one = defined({ lease })
    held.add(one)
    this.#held.set(sandboxId, held)
    const detach = async () => {
      if (!held.has(one)) return
      // Nothing is left of the mounts of a sandbox that is gone.
      if (this.#held.get(sandboxId) === held) await attached.detach()
      held.delete(one)
      if (held.size === 0 && this.#held.get(sandboxId) === held) this.#held.delete(sandboxId)
      await lease?.release()
    }
    return {
      detach,
      [Symbol.asyncDispose]: detach,
      isFull: async () => (await lease?.isFull()) ?? false,
      setReadOnly: () => attached.setReadOnly(),
      show: (path, other, { readOnly = true } = {}) =>
        this.#attach(sandboxId, targetOf(other), {
          type: 'part',
          of: attached,
          path: posix.normalize(`./${path}`),
          readOnly,
        }),
    }
  }
}

function wantedCache({ key, sharing = 'shared', ...given }: StepMount & { type: 'cache' }) {
  const { mode = 0o755, uid = 0, gid = 0 } = given
  return { key, sharing, owner: { mode, uid, gid } }
}

function sourceOf(mount: StepMount, { memoryMb, diskMb }: Sandbox, lease?: CacheLease): MountSource {
  switch (mount.type) {
    case 'cache':
      return { type: 'cache', id: lease?.id ?? '', readOnly: mount.readOnly ?? false }
    case 'tmpfs':
      return { type: 'tmpfs', bytes: Math.min(mount.sizeBytes ?? Infinity, memoryMb * mebibyte) }
    case 'scratch':
      return { type: 'scratch', bytes: diskMb * mebibyte }
    case 'secret': {
      const { content, mode = 0o400, uid = 0, gid = 0 } = mount
      return { type: 'secret', content, mode, uid, gid }
    }
  }
}

function assertMount(mount: StepMount): void {
  if (mount.type === 'cache') {
    assertInput(Buffer.byteLength(mount.key) <= keyBytesMax, 'id', `must be at most ${keyBytesMax} bytes`)
  }
  if (mount.type === 'tmpfs' && mount.sizeBytes !== undefined) {
    assertInteger(mount.sizeBytes, 'size', 1, Number.MAX_SAFE_INTEGER)
  }
  if (mount.type === 'secret' && mount.content.byteLength > secretBytesMax) {
    throw new ServiceError('too_large', `a secret has at most ${secretBytesMax} bytes`)
  }
  if (mount.type !== 'cache' && mount.type !== 'secret') return
  assertInteger(mount.mode ?? 0, 'mode', 0, 0o7777)
  assertInteger(mount.uid ?? 0, 'uid', 0, idMax)
  assertInteger(mount.gid ?? 0, 'gid', 0, idMax)
}

/** Normal: without `.`, `..`, empty parts and a slash at its end. */
function targetOf(path: string): string {
  assertInput(path.startsWith('/') && !path.includes('\0') && path.isWellFormed(), 'target', 'must be an absolute path')
  assertInput(Buffer.byteLength(path) <= pathBytesMax, 'target', `must be at most ${pathBytesMax} bytes`)
  const normal = posix.normalize(path)
  return normal.length > 1 && normal.endsWith('/') ? normal.slice(0, -1) : normal
}
