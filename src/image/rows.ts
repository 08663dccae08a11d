import { ServiceError } from '../errors.ts'
import type { KeyedMutex } from '../lib/async/mutex.ts'
import type { CreateOptions } from '../lib/creation.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import { assertInteger } from '../sandbox/index.ts'
import { type BuildFiles, keyOf } from './build-files.ts'
import type { BuildLogs } from './build-logs.ts'
import { readyCheckpoint } from './builder.ts'
import type { Image } from './image.ts'
import { type Manifest, planOf } from './manifest.ts'
import { type ImageNames, newImage } from './names.ts'
import type { ImageServiceDeps } from './service.ts'

interface RowsContext extends Pick<ImageServiceDeps, 'store' | 'sandboxes' | 'limits' | 'sandboxLimits'> {
  names: ImageNames
  files: BuildFiles
  logs: BuildLogs
  /** By organisation; `Removal` takes them too, so that an image that is shared is not removed meanwhile. */
  locks: KeyedMutex
}

interface RowOptions extends CreateOptions {
  name?: string
  isDetached: boolean
  isShared?: boolean
}

/** Finds or makes the row of an image, one for each content and one for each name. */
export class ImageRows {
  readonly #context: RowsContext

  constructor(context: RowsContext) {
    this.#context = context
  }

  /**
   * The row for a manifest: a new one that is `building`, or `ready` for a content that is there. A request without a name shares the row
   * of any image with its content; with `isShared`, a request with a name shares the row of that name if it has the same content.
   */
  async findOrInsert(
    orgId: string,
    manifest: Manifest,
    { name, isDetached, isShared = false, creation }: RowOptions,
  ): Promise<Image> {
    const { store, sandboxes, limits, sandboxLimits, names, files, logs, locks } = this.#context
    const plan = await planOf(manifest, limits)
    const { outline } = plan
    for (const field of ['builderMemoryMB', 'runtimeMemoryMB'] as const) {
      const value = outline[field]
      if (value !== undefined)
        assertInteger(value, `image.${field}`, sandboxLimits.memoryMbMin, sandboxLimits.memoryMbMax)
    }
    const made = creation?.made.find((id) => id.startsWith('img-'))
    const earlier = made === undefined ? undefined : await store.image(made, orgId)
    if (earlier !== undefined) return earlier
    if (outline.oci !== undefined) sandboxes.checkpoints.assertImportable(outline.oci)
    const { layerHashes, contentHash } = await names.hashesOf(orgId, outline)
    const draft = newImage(orgId, {
      ...defined({ name }),
      id: made ?? creation?.id('img-') ?? newId('img-'),
      contentHash,
      layerHashes,
      manifest: outline,
      isDetached,
    })
    return await locks.run(orgId, async () => {
      const alike = await store.imagesOf(contentHash, orgId)
      const same = isShared ? alike.find((image) => image.name === name && image.status !== 'failed') : undefined
      if (name !== undefined && same !== undefined) return same
      if (name !== undefined) await this.#freeName(orgId, name)
      const ready = await this.#findWhole(orgId, alike)
      if (name === undefined) {
        const shared = ready ?? alike.find((image) => image.status === 'building' && image.name === undefined)
        if (shared !== undefined) return shared
        for (const image of alike) if (image.status === 'failed' && image.name === undefined) await this.#delete(image)
      }
      const shared = ready?.checkpointId
      const image: Image =
        shared === undefined
          ? draft
          : { ...draft, status: 'ready', checkpointId: shared, ...defined({ oci: ready?.oci }) }
      if (image.status === 'building') await files.write(keyOf(image), plan.contents)
      await store.insertImage(image, made === undefined ? creation : undefined)
      if (ready !== undefined) await logs.keep(image, ready)
      return image
    })
  }

  /** Inserts the row of an image without a manifest, under a free name. Throws `conflict`. */
  async insert(image: Image & { name: string }): Promise<void> {
    const { store, locks } = this.#context
    await locks.run(image.orgId, async () => {
      await this.#freeName(image.orgId, image.name)
      await store.insertImage(image)
    })
  }

  /** Throws `conflict` for a name that is taken, and when there are too many. Removes a failed image of that name. */
  async #freeName(orgId: string, name: string): Promise<void> {
    const { store, limits } = this.#context
    const taken = await store.imageNamed(name, orgId)
    if (taken?.status === 'failed') await this.#delete(taken)
    else if (taken !== undefined) throw new ServiceError('conflict', `there is an image named ${name}`)
    const named = await store.countNamed(orgId)
    if (named >= limits.snapshotsMax) {
      throw new ServiceError('conflict', `the organisation has ${named} named images, the most it may have`)
    }
  }

  async #delete({ orgId, id }: Image): Promise<void> {
    await this.#context.store.deleteImage(id)
    await this.#context.logs.remove({ orgId, id })
  }

  /** The first of these whose checkpoint is there. Removes rows without their data. */
  async #findWhole(orgId: string, images: readonly Image[]): Promise<Image | undefined> {
    const { store, sandboxes } = this.#context
    for (const image of images) {
      if (image.status !== 'ready' || image.checkpointId === undefined) continue
      if (await readyCheckpoint(sandboxes, orgId, image.checkpointId)) return image
      if (image.name === undefined) await this.#delete(image)
      else await store.updateImage(image.id, { status: 'failed', failure: { message: 'its data is gone' } })
    }
    return undefined
  }
}
