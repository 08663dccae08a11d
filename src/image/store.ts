import type { Creation } from '../lib/creation.ts'
import type { Image, ImageChange, ImageLayer, ImageStatus } from './image.ts'

export interface ImageSelection {
  /** Default: those of all organisations that are public. */
  orgId?: string
  isNamed?: boolean
}

/** The port to the rows of images. Each method is one transaction, durable when it returns. */
export interface ImageStore {
  /**
   * Throws `conflict` when the organisation has an image of this name. One that is `ready` and `replaces` a name gets it at once, as by
   * `updateImage`.
   */
  insertImage(image: Image, creation?: Creation): Promise<Image>
  image(id: string, orgId?: string): Promise<Image | undefined>
  imageNamed(name: string, orgId: string): Promise<Image | undefined>
  /** One that every organisation may use. */
  publicImageNamed(name: string): Promise<Image | undefined>
  /** Of this content, newest first. */
  imagesOf(contentHash: string, orgId: string): Promise<Image[]>
  /** Those that are to have this name once they are ready, or have failed before. */
  replacementsOf(name: string, orgId: string): Promise<Image[]>
  /** A page after this image, newest first: as many as have 1 MiB of manifests together, and one at least. Empty at the end. */
  imagePage(which: ImageSelection, after?: Pick<Image, 'createdAt' | 'id'>): Promise<Image[]>
  /** How many have a name. */
  countNamed(orgId: string): Promise<number>
  /** An image whose first layer was imported with this hash. */
  importedImage(orgId: string, hash: string): Promise<Image | undefined>
  /** Of all organisations, oldest first. */
  imagesIn(status: ImageStatus): Promise<Image[]>
  /** Images without a name, and not `building`, that were last used before the moment. */
  unusedImages(usedBefore: Date): Promise<Pick<Image, 'orgId' | 'id'>[]>
  /**
   * Undefined when there is none. One that gets `ready` takes the name that it `replaces`, and whether it is public, from the image that has the
   * name then, if any, in the same transaction. That one goes on without a name.
   */
  updateImage(id: string, change: ImageChange): Promise<Image | undefined>
  deleteImage(id: string): Promise<boolean>
  /** Makes the rows of this content that are `building` own these layers too. */
  addLayerHashes(orgId: string, contentHash: string, hashes: readonly string[]): Promise<void>

  /** Replaces a layer of the same hash. */
  putLayer(layer: ImageLayer): Promise<void>
  layers(orgId: string, hashes: readonly string[]): Promise<ImageLayer[]>
  deleteLayer(orgId: string, hash: string): Promise<void>
  /** Deletes the layers of one organisation, or of all, that none of its images is built of, and returns them. */
  deleteUnusedLayers(orgId?: string): Promise<ImageLayer[]>
  /** The ids of all checkpoints that an image or a layer names. */
  imageCheckpointIds(): Promise<string[]>
}

/** Newest first. One page is in memory at a time. */
export async function* imagesOf(store: Pick<ImageStore, 'imagePage'>, which: ImageSelection): AsyncGenerator<Image> {
  let last: Image | undefined
  do {
    const page = await store.imagePage(which, last)
    yield* page
    last = page.at(-1)
  } while (last !== undefined)
}
