import { ignoreNotFound } from '../errors.ts'
import type { KeyedMutex } from '../lib/async/mutex.ts'
import type { Checkpoint } from '../sandbox/index.ts'
import type { BuildLogs } from './build/logs.ts'
import type { ImageServiceDeps } from './service.ts'

interface RemovalContext extends Pick<ImageServiceDeps, 'store' | 'sandboxes' | 'log'> {
  /** By organisation; `ImageRows` takes them too, to find an image to share. */
  locks: KeyedMutex
  logs: BuildLogs
}

/** Removes images with the layers and checkpoints that no other image of the organisation needs, and what crashes have left. */
export class Removal {
  readonly #context: RemovalContext

  constructor(context: RemovalContext) {
    this.#context = context
  }

  /** Removes a row with its log, and the data that no other row needs. */
  async remove(orgId: string, id: string): Promise<void> {
    await this.#context.locks.run(orgId, async () => {
      const { store, logs } = this.#context
      const image = await store.image(id, orgId)
      await store.deleteImage(id)
      await logs.remove({ orgId, id })
      await this.#removeUnusedLayers(orgId, image?.checkpointId)
    })
  }

  /** Removes the layers of an organisation that no image of it is built of. */
  async removeLayers(orgId: string): Promise<void> {
    await this.#context.locks.run(orgId, () => this.#removeUnusedLayers(orgId))
  }

  async #removeUnusedLayers(orgId: string, checkpointId?: string): Promise<void> {
    const layers = await this.#context.store.deleteUnusedLayers(orgId)
    const ids = [...layers.map((layer) => layer.checkpointId), checkpointId]
    await this.removeCheckpoints(ids.flatMap((id) => (id ? { id, orgId } : [])))
  }

  /** Removes the checkpoints among these that no row names. */
  async removeCheckpoints(checkpoints: readonly Pick<Checkpoint, 'id' | 'orgId'>[]): Promise<void> {
    const { store, sandboxes } = this.#context
    if (checkpoints.length === 0) return
    const used = new Set(await store.imageCheckpointIds())
    for (const { id, orgId } of checkpoints) {
      if (used.has(id)) continue
      const checkpoint = await sandboxes.checkpoints.settled(orgId, id).catch(ignoreNotFound)
      if (checkpoint !== undefined)
        await sandboxes.checkpoints.delete(orgId, checkpoint.sandboxId, id).catch(ignoreNotFound)
    }
  }

  async removeUnused(usedBefore: Date, signal: AbortSignal): Promise<void> {
    const unused = await this.#context.store.unusedImages(usedBefore)
    for (const { orgId, id } of unused) if (!signal.aborted) await this.remove(orgId, id)
  }

  /** Removes the sandboxes of builds that a crash cut off. A detached build goes on from its last layer in a new one. */
  async removeBuildSandboxes(): Promise<void> {
    const { sandboxes, log } = this.#context
    for (const { id, orgId } of await sandboxes.listOfBuilds()) {
      await sandboxes.delete(orgId, id).catch((error: unknown) => {
        log.warn({ err: error, sandboxId: id }, 'the sandbox of a build could not be removed')
      })
    }
  }

  /** Removes layers and checkpoints that builds have made and no row names. */
  async removeUnknown(): Promise<void> {
    const { store, sandboxes } = this.#context
    await store.deleteUnusedLayers()
    await this.removeCheckpoints(await sandboxes.checkpoints.listOwnedBy('image'))
  }
}
