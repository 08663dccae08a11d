import { KeyedMutex } from '../../lib/async/mutex.ts'
import { readyCheckpoint } from '../checkpoint.ts'
import type { Removal } from '../removal.ts'
import type { ImageServiceDeps } from '../service.ts'

interface LayersContext extends Pick<ImageServiceDeps, 'store' | 'sandboxes'> {
  removal: Pick<Removal, 'removeCheckpoints'>
}

/** The layers of builds. A build may copy from one that another build replaces: it goes when no build of the organisation runs. */
export class Layers {
  readonly #context: LayersContext
  readonly #locks = new KeyedMutex()
  /** By organisation. */
  readonly #builds = new Map<string, { count: number; replaced: string[] }>()

  constructor(context: LayersContext) {
    this.#context = context
  }

  /** Runs a build. */
  async use<Result>(orgId: string, work: () => Promise<Result>): Promise<Result> {
    const builds = this.#builds.get(orgId) ?? { count: 0, replaced: [] }
    this.#builds.set(orgId, builds)
    builds.count += 1
    try {
      return await work()
    } finally {
      builds.count -= 1
      if (builds.count === 0) {
        this.#builds.delete(orgId)
        await this.#context.removal.removeCheckpoints(builds.replaced.map((id) => ({ id, orgId })))
      }
    }
  }

  /** The last of these hashes of which a layer is there, and its checkpoint. */
  async newest(orgId: string, hashes: readonly string[]): Promise<{ index: number; checkpointId: string } | undefined> {
    const { store, sandboxes } = this.#context
    const byHash = new Map((await store.layers(orgId, hashes)).map((layer) => [layer.hash, layer]))
    for (const [index, hash] of [...hashes.entries()].toReversed()) {
      const layer = byHash.get(hash)
      if (layer === undefined) continue
      const { checkpointId } = layer
      if (await readyCheckpoint(sandboxes, orgId, checkpointId)) return { index, checkpointId }
      // The data of the layer is gone.
      await store.deleteLayer(orgId, hash)
    }
    return undefined
  }

  /** Keeps a checkpoint as the layer of a hash. Returns the one that is kept: without `replaces` an earlier one of another stage or build stays. */
  async put(orgId: string, hash: string, checkpointId: string, replaces: boolean): Promise<string> {
    const { store, removal } = this.#context
    return await this.#locks.run(`${orgId} ${hash}`, async () => {
      const earlier = await this.newest(orgId, [hash])
      if (earlier !== undefined && !replaces) {
        await removal.removeCheckpoints([{ id: checkpointId, orgId }])
        return earlier.checkpointId
      }
      await store.putLayer({ orgId, hash, checkpointId })
      if (earlier !== undefined) this.#builds.get(orgId)?.replaced.push(earlier.checkpointId)
      return checkpointId
    })
  }
}
