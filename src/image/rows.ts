import { ServiceError } from '../errors.ts'
import type { KeyedMutex } from '../lib/async/mutex.ts'
import type { CreateOptions } from '../lib/creation.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import { sha256 } from '../lib/secret.ts'
import { assertInteger } from '../sandbox/index.ts'
import { type BuildFiles, keyOf } from './build/files.ts'
import type { BuildLogs } from './build/logs.ts'
import type { BuildSecrets } from './build/recorded-builds.ts'
import { readyCheckpoint } from './checkpoint.ts'
import type { Image } from './image.ts'
import { type Manifest, planOf } from './manifest.ts'
import { type ImageNames, newImage, notReady } from './names.ts'
import type { Publications } from './publications.ts'
import type { ImageServiceDeps } from './service.ts'

interface RowsContext extends Pick<ImageServiceDeps, 'store' | 'sandboxes' | 'limits' | 'sandboxLimits'> {
  names: ImageNames
  files: BuildFiles
  logs: BuildLogs
  publications: Publications
  secrets: BuildSecrets
  /** By organisation; `Removal` takes them too, so that an image that is shared is not removed meanwhile. */
  locks: KeyedMutex
}

interface RowOptions extends CreateOptions {
  name?: string
  isDetached: boolean
  isShared?: boolean
  /** Give a name that is taken to the new image, once it is ready. */
  replace?: boolean
}

/** Finds or makes the row of an image, one for each content and one for each name. */
export class ImageRows {
  readonly #context: RowsContext

  constructor(context: RowsContext) {
    this.#context = context
  }

  /**
   * The row for a manifest: a new one that is `building`, or `ready` for a content that is there. A request without a name shares the row
   * of any image with its content; with `isShared`, a request with a name shares the row of that name if it has the same content, and with
   * `replace` if it is also ready: there is nothing to replace then.
   */
  async findOrInsert(
    orgId: string,
    manifest: Manifest,
    { name, isDetached, isShared = false, replace = false, creation }: RowOptions,
  ): Promise<Image> {
    const { store, sandboxes, limits, sandboxLimits, names, files, logs, locks, publications, secrets } = this.#context
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
    const { layerHashes, contentHash: ofContent } = await names.hashesOf(orgId, outline)
    // A build without the cache is another one than those of the same content.
    const contentHash = outline.noCache ? sha256(`${ofContent} ${newId('img-')}`) : ofContent
    const draft = newImage(orgId, {
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
      const ready = await this.#findWhole(orgId, alike, replace ? name : undefined)
      if (replace && name !== undefined && ready?.name === name) return ready
      const named = name === undefined ? {} : await this.#claimName(orgId, name, replace)
      if (name === undefined) {
        const isUnnamed = (image: Image) => image.name === undefined && image.replaces === undefined
        const shared = ready ?? alike.find((image) => image.status === 'building' && isUnnamed(image))
        if (shared !== undefined) return shared
        for (const image of alike) if (image.status === 'failed' && image.name === undefined) await this.#delete(image)
      }
      // What those builds own, this row owns too: another's removal must not take it from under this one.
      const known = alike.find((image) => image.layerHashes.length > 0)?.layerHashes
      const shared = ready?.checkpointId
      const image: Image =
        shared === undefined
          ? { ...draft, ...named, layerHashes: known ?? layerHashes }
          : {
              ...draft,
              ...named,
              status: 'ready',
              checkpointId: shared,
              layerHashes: known ?? layerHashes,
              ...defined({ oci: ready?.oci, config: ready?.config }),
            }
      if (image.status === 'building') await files.write(keyOf(image), plan.contents)
      const inserted = await publications.insert(image, made === undefined ? creation : undefined)
      if (ready !== undefined) await logs.keep(inserted, ready)
      if (inserted.status === 'building' && plan.secrets.size > 0) secrets.set(inserted.id, plan.secrets)
      return inserted
    })
  }

  /** Inserts the row of an image without a manifest. Throws `conflict` for a name that is taken, without `replace`. */
  async insert(image: Image, name: string, replace: boolean): Promise<Image> {
    const { store, locks } = this.#context
    return await locks.run(
      image.orgId,
      async () => await store.insertImage({ ...image, ...(await this.#claimName(image.orgId, name, replace)) }),
    )
  }

  /**
   * Gives an image another name: a row of its own with the same content, which neither's removal takes from the other. One that has the name and
   * the same content is answered as it is. Throws `conflict` for a name that is taken, without `replace`, and for an image that is not ready.
   */
  async tag(image: Image, name: string, replace: boolean): Promise<Image> {
    const { store, logs, locks, publications } = this.#context
    const { orgId } = image
    return await locks.run(orgId, async () => {
      const source = await store.image(image.id, orgId)
      if (source?.status !== 'ready') throw notReady(source ?? image)
      const holder = await store.imageNamed(name, orgId)
      if (holder?.status === 'ready' && holder.checkpointId === source.checkpointId) return holder
      const { name: _name, ...same } = source
      const claim = await this.#claimName(orgId, name, replace)
      const now = new Date()
      const row = { ...same, ...claim, id: newId('img-'), isPublic: false, createdAt: now, lastUsedAt: now }
      const tagged = await publications.insert(row)
      await logs.keep(tagged, source)
      return tagged
    })
  }

  /**
   * What makes a row have the name, or get it when it is ready. Throws `conflict` for a name that is taken, without `replace`, and when there are
   * too many. Removes what has failed under that name.
   */
  async #claimName(orgId: string, name: string, replace: boolean): Promise<Pick<Image, 'name' | 'replaces'>> {
    const { store, limits } = this.#context
    const taken = await store.imageNamed(name, orgId)
    const failed = [taken, ...(await store.replacementsOf(name, orgId))]
    for (const image of failed) if (image?.status === 'failed') await this.#delete(image)
    if (taken !== undefined && taken.status !== 'failed') {
      if (replace) return { replaces: name }
      const way = 'replace it (--replace), or choose another name'
      throw new ServiceError('conflict', `there is an image named ${name}: ${way}`)
    }
    const named = await store.countNamed(orgId)
    if (named >= limits.snapshotsMax) {
      throw new ServiceError('conflict', `the organisation has ${named} named images, the most it may have`)
    }
    return { name }
  }

  async #delete({ orgId, id }: Image): Promise<void> {
    await this.#context.store.deleteImage(id)
    await this.#context.logs.remove({ orgId, id })
  }

  /** The first of these whose checkpoint is there, one of this name before others. Removes rows without their data. */
  async #findWhole(orgId: string, images: readonly Image[], name?: string): Promise<Image | undefined> {
    const { store, sandboxes } = this.#context
    const isWanted = (image: Image) => name !== undefined && image.name === name
    for (const image of images.toSorted((a, b) => Number(isWanted(b)) - Number(isWanted(a)))) {
      if (image.status !== 'ready' || image.checkpointId === undefined) continue
      if (await readyCheckpoint(sandboxes, orgId, image.checkpointId)) return image
      if (image.name === undefined) await this.#delete(image)
      else await store.updateImage(image.id, { status: 'failed', failure: { message: 'its data is gone' } })
    }
    return undefined
  }
}
