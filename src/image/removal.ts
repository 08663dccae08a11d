import type { KeyedMutex } from '../lib/async/mutex.ts'
import type { Log } from '../lib/log.ts'
import type { Checkpoint, SandboxService } from '../sandbox/index.ts'
import { notFound } from './builder.ts'
import type { ImageStore } from './store.ts'

interface RemovalContext {
  store: ImageStore
  sandboxes: SandboxService
  /** By organisation: what finds an image to share takes them too. */
  locks: KeyedMutex
  log: Log
}

/** Removes images with the layers and checkpoints that no other image of the organisation needs, and what crashes have left. */
export class Removal {
  readonly #context: RemovalContext

  constructor(context: RemovalContext) {
    this.#context = context
  }

  /** Removes a row, and the data that no other row needs. */
  async remove(orgId: string, id: string): Promise<void> {
    await this.#context.locks.run(orgId, async () => {
      const { store } = this.#context
      const image = await store.image(id, orgId)
      await store.deleteImage(id)
      const layers = await store.deleteUnusedLayers(orgId)
      const ids = [...layers.map((layer) => layer.checkpointId), image?.checkpointId]
      await this.removeCheckpoints(ids.flatMap((checkpointId) => (checkpointId ? { id: checkpointId, orgId } : [])))
    })
  }

  /** Removes those that no row names. */
  async removeCheckpoints(checkpoints: readonly Pick<Checkpoint, 'id' | 'orgId'>[]): Promise<void> {
    const { store, sandboxes } = this.#context
    if (checkpoints.length === 0) return
    const used = new Set(await store.imageCheckpointIds())
    for (const { id, orgId } of checkpoints) {
      if (used.has(id)) continue
      const checkpoint = await sandboxes.checkpoints.settled(orgId, id).catch(notFound)
      if (checkpoint !== undefined) await sandboxes.checkpoints.delete(orgId, checkpoint.sandboxId, id).catch(notFound)
    }
  }

  async removeUnused(usedBefore: Date, signal: AbortSignal): Promise<void> {
    const unused = await this.#context.store.unusedImages(usedBefore)
    for (const { orgId, id } of unused) if (!signal.aborted) await this.remove(orgId, id)
  }

  /** Those of builds that a crash cut off. A detached build goes on from its last layer in a new one. */
  async removeBuildSandboxes(): Promise<void> {
    const { sandboxes, log } = this.#context
    for (const { id, orgId } of await sandboxes.listOfBuilds()) {
      await sandboxes.delete(orgId, id).catch((error: unknown) => {
        log.warn({ err: error, sandboxId: id }, 'the sandbox of a build could not be removed')
      })
    }
  }

  /** Layers and checkpoints that builds have made and no row names. */
  async removeUnknown(): Promise<void> {
    const { store, sandboxes } = this.#context
    await store.deleteUnusedLayers()
    await this.removeCheckpoints(await sandboxes.checkpoints.listOwnedBy('image'))
  }
}
