import { isServiceError, ServiceError } from '../errors.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import type { Creation } from '../lib/creation.ts'
import type { Checkpoint, CheckpointChange } from './checkpoint.ts'
import type { LifecycleContext } from './lifecycle.ts'
import type { CheckpointKind } from './ports/runtime-driver.ts'

export type SavedCheckpoint = CheckpointChange & Pick<Checkpoint, 'sizeBytes'>

/** The records of checkpoints within two quotas: how many a sandbox has of a kind, and the disk of the organisation. */
export class CheckpointRecords {
  readonly #context: Pick<LifecycleContext, 'store' | 'driver' | 'disk' | 'limits'>
  /** By sandbox. */
  readonly #creations = new KeyedMutex()

  constructor(context: Pick<LifecycleContext, 'store' | 'driver' | 'disk' | 'limits'>) {
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

  /** Throws `quota_exceeded` when the organisation has no disk left. The size of a checkpoint is known only at its end. */
  async insert(checkpoint: Checkpoint, creation?: Creation): Promise<void> {
    const { store, disk } = this.#context
    await disk.claimMb(checkpoint.orgId, 1, () => store.insertCheckpoint(checkpoint, creation))
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
    const alike = all.filter((other) => other.kind === kind)
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

function isClients({ owner }: Checkpoint): boolean {
  return owner === 'client' || owner === 'wake'
}
