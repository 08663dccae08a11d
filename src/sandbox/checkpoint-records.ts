import { isServiceError, ServiceError } from '../errors.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import type { Creation } from '../lib/creation.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import type { LifecycleContext } from './lifecycle.ts'
import type { CheckpointKind } from './ports/runtime-driver.ts'
import type { Sandbox } from './sandbox.ts'
import type { CheckpointVolume } from './volume.ts'

/** Sizes and environment that a sandbox started from the checkpoint inherits. */
export type SandboxConfig = Pick<
  Sandbox,
  'image' | 'cpuCount' | 'memoryMb' | 'diskMb' | 'envs' | 'commandDefaults' | 'egress'
>

/**
 * Whose a checkpoint is: one that a client has made, a layer or the result of an image's build, the start of a session's fork, memory
 * that a wake from the disk has set aside, or the state after a turn of a session. Those of images, forks and turns are deleted with what
 * needs them, and no retention policy counts them. Those of turns have no quota beside the disk, and lists leave them out that do not ask
 * for them.
 */
export type CheckpointOwner = 'client' | 'image' | 'session' | 'wake' | 'turn'

export interface Checkpoint {
  id: string
  orgId: string
  owner: CheckpointOwner
  /** The installation whose host has its data; see `Sandbox.hostId`. */
  hostId?: string
  /** The source; it may be deleted long before the checkpoint. */
  sandboxId: string
  /** Unique among the checkpoints of its sandbox. */
  name: string
  kind: CheckpointKind
  status: 'processing' | 'ready' | 'failed'
  sizeBytes: number
  sandboxConfig: SandboxConfig
  /** Every organisation may start sandboxes from it. */
  isPublic?: boolean
  /** Those of the sandbox, which it does not contain. */
  volumes: CheckpointVolume[]
  error?: string
  createdAt: Date
  /** When it is deleted by itself. Absent: never. */
  expiresAt?: Date
}

/** How many make use of a checkpoint. A sandbox that was started from it runs on without it, but for its `on_resume` patches. */
export interface CheckpointDependents {
  /** Started from it, and not stopped. */
  sandboxes: number
  /** Sessions that began with it, and have not ended. */
  sessions: number
  /** Images, and layers of images, that consist of it. */
  images: number
  /** Made of those sandboxes. */
  checkpoints: number
}

export type CheckpointChange = Partial<
  Pick<Checkpoint, 'status' | 'sizeBytes' | 'sandboxConfig' | 'isPublic' | 'volumes'>
> & {
  error?: string | undefined
  expiresAt?: Date | undefined
}

export interface CreateCheckpoint {
  /** For sessions and images, which write it down before. Clients never choose it. */
  id?: string
  /** Default: `client`. Those of images and turns do not count for the quota of their sandbox. */
  owner?: CheckpointOwner
  name: string
  kind?: CheckpointKind
  /** From its creation. Default: it stays. */
  expiresInSeconds?: number
  /** What a sandbox started from it inherits in place of what the source has. */
  sandboxConfig?: Partial<SandboxConfig>
  /** Leaves at most `maxCount` of the kind once the new one is ready. A dump that fails deletes none. */
  retentionPolicy?: { mode: 'delete_oldest'; maxCount: number }
}

export type SavedCheckpoint = CheckpointChange & Pick<Checkpoint, 'sizeBytes'>

/** The records of checkpoints within two quotas: how many a sandbox has of a kind, and the disk of the organisation. */
export class CheckpointRecords {
  readonly #context: Pick<LifecycleContext, 'store' | 'driver' | 'disk' | 'limits' | 'quotaOf'>
  /** By sandbox. */
  readonly #creations = new KeyedMutex()

  constructor(context: Pick<LifecycleContext, 'store' | 'driver' | 'disk' | 'limits' | 'quotaOf'>) {
    this.#context = context
  }

  countMax(kind: CheckpointKind): number {
    const { fullCheckpointsMax, diskOnlyCheckpointsMax } = this.#context.limits
    return kind === 'full' ? fullCheckpointsMax : diskOnlyCheckpointsMax
  }

  /**
   * Inserts it. Throws `conflict` for a taken name and for a used-up quota of the kind, and what `insert` throws. With a retention policy
   * ready ones do not count: they go once the new one is ready.
   */
  async claim(
    checkpoint: Checkpoint,
    { isRetained = false, creation }: { isRetained?: boolean; creation?: Creation | undefined } = {},
  ): Promise<void> {
    // Check and insert under one lock; otherwise concurrent calls would all find the last unit of the quota free.
    await this.#creations.run(checkpoint.sandboxId, async () => {
      await this.#assertFree(checkpoint, isRetained)
      await this.insert(checkpoint, creation)
    })
  }

  /**
   * Throws `quota_exceeded` when the organisation has no disk left, or as many checkpoints of clients as it may have. The size of a checkpoint is
   * known only at its end.
   */
  async insert(checkpoint: Checkpoint, creation?: Creation): Promise<void> {
    const { store, disk } = this.#context
    // Under the lock of the organisation, so that concurrent calls do not all find the last unit free.
    await disk.claimMb(checkpoint.orgId, 1, async () => {
      if (checkpoint.owner === 'client') await this.#assertOrganisationHasRoom(checkpoint.orgId)
      await store.insertCheckpoint(checkpoint, creation)
    })
  }

  async #assertOrganisationHasRoom(orgId: string): Promise<void> {
    const { store, quotaOf } = this.#context
    const limit = quotaOf?.(orgId).checkpointsMax ?? Infinity
    if (limit === Infinity) return
    const active = await store.countCheckpoints(orgId)
    if (active < limit) return
    throw new ServiceError('quota_exceeded', `the organisation has ${active} checkpoints, the most it may have`, {
      details: { limit, active },
    })
  }

  /**
   * Sets a checkpoint to `ready`. Throws `quota_exceeded` when it is larger than the disk that the organisation has left, and then removes its
   * data. Returns undefined when it was deleted meanwhile.
   */
  async setReady({ id, orgId }: Checkpoint, saved: SavedCheckpoint): Promise<Checkpoint | undefined> {
    const { store, driver, disk } = this.#context
    const record = () => store.updateCheckpoint(id, { status: 'ready', ...saved })
    return await disk.claim(orgId, saved.sizeBytes, record).catch(async (error: unknown) => {
      if (isServiceError(error, 'quota_exceeded')) await driver.deleteCheckpoint(id)
      throw error
    })
  }

  /** Leaves `keepMax` of a kind. Deletes failed ones first, then the oldest, never the newest. */
  async removeOldest({ id, orgId, sandboxId, kind }: Checkpoint, keepMax: number): Promise<void> {
    await this.#creations.run(sandboxId, async () => {
      const all = await this.#context.store.listCheckpoints(sandboxId, orgId)
      const alike = all.filter((other) => other.kind === kind && other.status !== 'processing' && isClients(other))
      const older = alike.filter((other) => other.id !== id)
      const failedFirst = (['failed', 'ready'] as const).flatMap((status) => older.filter((it) => it.status === status))
      for (const other of failedFirst.slice(0, Math.max(0, alike.length - keepMax))) await this.remove(other.id)
    })
  }

  /** Removes a checkpoint with its data. */
  async remove(checkpointId: string): Promise<void> {
    // The record goes first, so that no call can name it. The store remembers the id for the next start, in case of a crash here.
    if (await this.#context.store.deleteCheckpoint(checkpointId)) await this.#removeData(checkpointId)
  }

  /** Likewise, if its time was over by then. */
  async removeExpired(checkpointId: string, expiredBy: Date): Promise<void> {
    if (await this.#context.store.deleteCheckpoint(checkpointId, expiredBy)) await this.#removeData(checkpointId)
  }

  async #removeData(checkpointId: string): Promise<void> {
    const { store, driver } = this.#context
    await driver.deleteCheckpoint(checkpointId)
    await store.forgetCheckpoints([checkpointId])
  }

  /** Failed checkpoints hold no data and are removed to free their unit. */
  async #assertFree({ orgId, sandboxId, name, kind }: Checkpoint, isRetained: boolean): Promise<void> {
    const all = await this.#context.store.listCheckpoints(sandboxId, orgId)
    if (all.some((other) => other.name === name)) {
      throw new ServiceError('conflict', `sandbox ${sandboxId} has a checkpoint named ${JSON.stringify(name)}`, {
        details: { field: 'name' },
      })
    }
    const alike = all.filter((other) => other.kind === kind && other.owner !== 'turn')
    const max = this.countMax(kind)
    const failed = alike.filter(({ status }) => status === 'failed').slice(0, Math.max(0, alike.length - max + 1))
    const counted = alike.filter(({ status }) => status === 'processing' || (status === 'ready' && !isRetained))
    if (counted.length >= max) {
      const count = `${counted.length} ${kind} checkpoints`
      throw new ServiceError('conflict', `sandbox ${sandboxId} has ${count}, the most it may have`)
    }
    for (const { id } of failed) await this.remove(id)
  }
}

/** Whether its record counts for the quota of its sandbox. */
export function countsForSandbox(owner: CheckpointOwner): boolean {
  return owner !== 'image' && owner !== 'turn'
}

/** Throws `conflict` for a checkpoint that is deleted with what needs it. */
export function assertOutlives({ id, owner }: Pick<Checkpoint, 'id' | 'owner'>): void {
  if (owner === 'client' || owner === 'wake') return
  const whose = owner === 'image' ? 'an image' : 'a session'
  throw new ServiceError('conflict', `checkpoint ${id} is of ${whose}, and is deleted with it`)
}

function isClients({ owner }: Checkpoint): boolean {
  return owner === 'client' || owner === 'wake'
}

export function newCheckpoint(
  sandbox: Sandbox,
  input: Pick<CreateCheckpoint, 'id' | 'owner' | 'name' | 'sandboxConfig' | 'expiresInSeconds'> & {
    kind: CheckpointKind
  },
): Checkpoint {
  const { id = newId('cp-'), owner = 'client', name, kind, sandboxConfig, expiresInSeconds } = input
  const createdAt = new Date()
  return {
    id,
    orgId: sandbox.orgId,
    owner,
    sandboxId: sandbox.id,
    name,
    kind,
    status: 'processing',
    sizeBytes: 0,
    sandboxConfig: { ...configOf(sandbox), ...sandboxConfig },
    volumes: sandbox.volumes,
    createdAt,
    ...defined({ expiresAt: secondsAfter(createdAt, expiresInSeconds) }),
  }
}

export function secondsAfter(time: Date, seconds: number | undefined): Date | undefined {
  return seconds === undefined ? undefined : new Date(time.getTime() + seconds * 1000)
}

function configOf({ image, cpuCount, memoryMb, diskMb, envs, commandDefaults, egress }: Sandbox): SandboxConfig {
  return { image, cpuCount, memoryMb, diskMb, envs, ...defined({ commandDefaults, egress }) }
}
