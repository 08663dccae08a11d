import { ignoreNotFound, ServiceError } from '../errors.ts'
import type { Creation } from '../lib/creation.ts'
import type { Image, ImageChange } from './image.ts'
import { notReady } from './names.ts'
import type { ImageServiceDeps } from './service.ts'
import { imagesOf } from './store.ts'

type PublicationsContext = Pick<ImageServiceDeps, 'store' | 'sandboxes' | 'operatorOrgId' | 'log'>

/**
 * Which images every organisation may start from. A public image has a public checkpoint. A crash between the two writes leaves a public row
 * without a public checkpoint, which `settle` makes private; or, of a replacement, a public checkpoint that no name leads to.
 */
export class Publications {
  readonly #context: PublicationsContext

  constructor(context: PublicationsContext) {
    this.#context = context
  }

  /** Throws `forbidden` for another organisation than that of the operator. */
  async assertAllowed(orgId: string): Promise<void> {
    if ((await this.#context.operatorOrgId()) === orgId) return
    throw new ServiceError('forbidden', "only the operator's own organisation may publish")
  }

  /** Throws `conflict` for an image that is not ready. */
  async set(image: Image, isPublic: boolean): Promise<Image> {
    const { store } = this.#context
    if (image.checkpointId === undefined) throw notReady(image)
    const record = async () => (await store.updateImage(image.id, { isPublic })) ?? image
    if (!isPublic) {
      await this.#withdraw(image)
      return await record()
    }
    const published = await record()
    await this.#setCheckpoint(image, true)
    return published
  }

  /** Inserts a row. If it takes the name of a public image, it is public too. */
  async insert(image: Image, creation?: Creation): Promise<Image> {
    return await this.#replace(image, (store) => store.insertImage(image, creation))
  }

  /** Writes that an image is ready. If it takes the name of a public image, it is public too. */
  async record(image: Image, change: ImageChange): Promise<Image | undefined> {
    return await this.#replace({ ...image, ...change }, (store) => store.updateImage(image.id, change))
  }

  /** Makes public images private whose checkpoint is private: a crash has cut off a publication. */
  async settle(): Promise<void> {
    const { store, sandboxes, log } = this.#context
    for await (const { id, orgId, checkpointId = '' } of imagesOf(store, {})) {
      const checkpoint = await sandboxes.checkpoints.settled(orgId, checkpointId).catch(ignoreNotFound)
      if (checkpoint === undefined || checkpoint.isPublic) continue
      await store.updateImage(id, { isPublic: false })
      log.warn({ imageId: id }, 'an image was public without its checkpoint, and is not any more')
    }
  }

  async #replace<Result extends Image | undefined>(
    { orgId, status, replaces, ...image }: Image,
    write: (store: PublicationsContext['store']) => Promise<Result>,
  ): Promise<Result> {
    const { store } = this.#context
    const isTaker = status === 'ready' && replaces !== undefined
    const holder = isTaker ? await store.imageNamed(replaces, orgId) : undefined
    // Before the row is public, so that a name which others use is never without its checkpoint.
    if (holder?.isPublic) await this.#setCheckpoint({ ...image, orgId }, true)
    const written = await write(store)
    // The name was published meanwhile.
    if (written?.isPublic && !holder?.isPublic) await this.#setCheckpoint(written, true)
    if (holder?.isPublic) await this.#withdraw(holder)
    return written
  }

  /** Makes the checkpoint of an image private, unless another public image has it. */
  async #withdraw({ id, orgId, contentHash, checkpointId }: Image): Promise<void> {
    const alike = await this.#context.store.imagesOf(contentHash, orgId)
    const isShared = alike.some((image) => image.id !== id && image.isPublic && image.checkpointId === checkpointId)
    if (!isShared) await this.#setCheckpoint({ orgId, checkpointId }, false)
  }

  async #setCheckpoint(image: { orgId: string; checkpointId?: string | undefined }, isPublic: boolean): Promise<void> {
    const { orgId, checkpointId } = image
    if (checkpointId !== undefined) await this.#context.sandboxes.checkpoints.publish(orgId, checkpointId, isPublic)
  }
}
