import { randomBytes } from 'node:crypto'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import { KeyedMutex } from '../../lib/async/mutex.ts'
import { Semaphore } from '../../lib/async/semaphore.ts'
import { defined } from '../../lib/defined.ts'
import type { ImageSource, ImportedImage } from '../../sandbox/ports/runtime-driver.ts'
import { importsFolder } from '../disk/index.ts'
import { layerOf, noteOf } from '../host/bundle.ts'
import type { OpenHost } from '../host/context.ts'
import type { CheckpointRecord, Layer } from '../host/records.ts'
import { readArchive, storeArchive, type ImageFiles } from './archive.ts'
import { refuseImage, type ImageField, type ImageLimits } from './limits.ts'
import { chainIds, digestOf, readConfiguration } from './manifest.ts'
import type { Registries } from './registry.ts'
import { unpackerOf, type Unpack, type Unpacked, type UnpackRequest } from './unpack.ts'

/** The image that has mount points alone. */
const emptyImage = 'scratch'
const chainDigits = 40
/** Owned by ids from 0, like the images of the host. */
const rangeStart = 0

/** What is written beside the files of a layer. */
const layerNote = z.object({
  inodeEnd: z.number().optional(),
  bytes: z.number(),
  files: z.number(),
  isOpaque: z.boolean(),
})
type LayerNote = z.output<typeof layerNote>

interface ImportOptions {
  limits: ImageLimits
  registries: Registries
}

interface ImportRequest {
  checkpointId: string
  source: ImageSource
  signal: AbortSignal
}

/**
 * Makes checkpoints of OCI images. Each layer becomes a layer of the pool under the digest of its chain, which says what is in it and
 * below it; images that begin alike share layers.
 *
 *     fetched into imports/<id> ──► layers, lowest first: imports/<id>.<n> ── unpacked, verified ── snapshot ──► layers/oci-<chain>
 *                                                                                                      └─► the record, last
 */
export class ImageImporter {
  readonly #limits: ImageLimits
  readonly #registries: Registries
  readonly #semaphore: Semaphore
  /** By layer: the second import of one waits for the first. */
  readonly #locks = new KeyedMutex()

  constructor({ limits, registries }: ImportOptions) {
    this.#limits = limits
    this.#registries = registries
    this.#semaphore = new Semaphore({ permits: limits.importsAtOnce })
  }

  /** Throws `invalid_request` unless the text names an image of a registry that the operator has named. */
  assertImportable(reference: string): void {
    this.#registries.parse(reference)
  }

  /** Removes credentials that a server that died has left. */
  async removeSecrets(): Promise<void> {
    await this.#registries.removeSecrets()
  }

  /** See `RuntimeDriver.importImage`. */
  async import(host: OpenHost, { checkpointId, source, signal }: ImportRequest): Promise<ImportedImage> {
    const work = () => this.#import(host, { checkpointId, source, signal })
    return await this.#semaphore.use(work, { signal })
  }

  async #import(host: OpenHost, { checkpointId, source, signal }: ImportRequest): Promise<ImportedImage> {
    const { inventory, images, hostd, pool } = host
    const field: ImageField = 'reference' in source ? 'image.oci' : 'archive'
    const { base } = await images.current(emptyImage).catch((cause: unknown) => {
      throw new ServiceError('unavailable', `there is no image ${emptyImage}: run npm run setup`, { cause })
    })
    // A refused import of the same id must not remove what the first one has.
    const folder = `${importsFolder}/${checkpointId}.${randomBytes(4).toString('hex')}`
    const unpack = unpackerOf(hostd, { field, limits: this.#limits, hostFolder: pool.path(''), signal })
    let imported: Omit<ImportedImage, 'sizeBytes'> | undefined
    let release: () => void = () => undefined
    try {
      const { sizeBytes } = await inventory.addCheckpoint(checkpointId, async () => {
        await pool.createSubvolume(folder)
        // An archive is there twice for a moment.
        await pool.limit(folder, 2 * this.#limits.downloadBytesMax)
        const { digest, configText, layers: blobs } = await this.#fetch(pool.path(folder), source, unpack, signal)
        const { diffIds, defaults } = readConfiguration(configText, field)
        if (diffIds.length !== blobs.length) throw refuseImage(field, 'has another number of layers than it says')
        imported = { digest, config: defaults }
        const chain = chainIds(diffIds)
        const parts = diffIds.map((diffId, index) => ({ diffId, blob: blobs[index]!, id: layerIdOf(chain[index]!) }))
        release = await inventory.holdLayers(parts.map(({ id }) => ({ checkpointId: id, rangeStart })))
        const layers = await this.#addLayers(host, { field, unpack, signal, folder }, parts)
        return { id: checkpointId, kind: 'disk_only', base, ...layers }
      })
      if (imported === undefined) throw new Error('an import has ended without an image')
      return { ...imported, sizeBytes }
    } finally {
      release()
      await removeDraft(host, folder)
      await inventory.removeUnused()
    }
  }

  async #fetch(folder: string, source: ImageSource, unpack: Unpack, signal: AbortSignal): Promise<ImageFiles> {
    if ('archive' in source) {
      await storeArchive(source.archive, `${folder}/archive.tar`, this.#limits, signal)
      return readArchive(`${folder}/archive.tar`, `${folder}/archive`, unpack, this.#limits)
    }
    const { digest, manifest, fileOf } = await this.#registries.fetch(source.reference, folder, signal)
    const config = await readFile(fileOf(manifest.config.digest))
    if (digestOf(config) !== manifest.config.digest) {
      throw refuseImage('image.oci', 'has another configuration than its digest says')
    }
    return { digest, configText: config.toString('utf8'), layers: manifest.layers.map((layer) => fileOf(layer.digest)) }
  }

  /** `parts` are the layers of the image, lowest first. Returns them as a record names them, and their size. */
  async #addLayers(
    host: OpenHost,
    { field, unpack, signal, folder }: LayerOptions,
    parts: readonly LayerPart[],
  ): Promise<Pick<CheckpointRecord, 'layers' | 'sizeBytes'>> {
    let layers: Layer[] = []
    let bytes = 0
    let files = 0
    for (const [index, { id, blob, diffId }] of parts.entries()) {
      signal.throwIfAborted()
      const bounds = { bytesMax: this.#limits.bytesMax - bytes, filesMax: this.#limits.filesMax - files }
      const unpackVerified: UnpackLayer = async (into) => {
        const unpacked = await unpack({ blob, ...bounds, ...into })
        if (`sha256:${unpacked.digest}` === diffId) return unpacked
        throw refuseImage(field, `has a layer of another content than its digest ${diffId} says`)
      }
      const make = () => this.#addLayer(host, { id, draft: `${folder}.${index}`, below: layers }, unpackVerified)
      const note = await this.#locks.run(id, make)
      bytes += note.bytes
      files += note.files
      const layer = { checkpointId: id, rangeStart, ...defined({ inodeEnd: note.inodeEnd }) }
      layers = note.isOpaque ? [layer] : [layer, ...layers]
    }
    const end = layers[0]?.inodeEnd
    // Made now, so that the first sandbox need not wait for it.
    if (end !== undefined) await host.templates.above(end)
    return { layers, sizeBytes: bytes }
  }

  /** Unpacks a layer that is not there yet. One that is there is verified all the same: nobody gets what they do not have already. */
  async #addLayer(
    host: OpenHost,
    { id, draft, below }: { id: string; draft: string; below: readonly Layer[] },
    unpack: UnpackLayer,
  ): Promise<LayerNote> {
    const { pool, hostd, templates, inventory } = host
    if (await pool.has(layerOf(id))) {
      await unpack({})
      const note = layerNote.parse(JSON.parse(await readFile(noteOf(pool.path(layerOf(id))), 'utf8')))
      return { ...note, ...defined({ inodeEnd: inventory.inodeEndOf(id) }) }
    }
    const above = below[0]?.inodeEnd ?? 0
    try {
      await pool.createSubvolume(draft, above === 0 ? undefined : await templates.below(above))
      const path = pool.path(draft)
      // Layers of one disk share no inode number, see `InodeTemplates`.
      if (above > 0) await hostd.runTool(['number', '--dir', path, '--from', String(above)])
      await mkdir(`${path}/upper`, { mode: 0o755 })
      const lowers = below.map((layer) => pool.path(`${layerOf(layer.checkpointId)}/upper`))
      const { bytes, files, isOpaque } = await unpack({ target: `${path}/upper`, lowers })
      const inodeEnd = await pool.nextInode(draft)
      const note = { bytes, files, isOpaque, ...defined({ inodeEnd }) }
      await writeFile(noteOf(path), JSON.stringify(note), { mode: 0o600 })
      await pool.snapshot(draft, layerOf(id))
      return note
    } finally {
      await removeDraft(host, draft)
    }
  }
}

/** A failure must not hide what an import has failed for; the next `open` removes what stays. */
async function removeDraft({ pool, log }: OpenHost, path: string): Promise<void> {
  await pool.remove(path).catch((error: unknown) => log(`${path} stays until the next start: ${String(error)}`))
}

interface LayerPart {
  id: string
  blob: string
  /** SHA-256 of the uncompressed layer. */
  diffId: string
}

/** Unpacks one layer, or verifies it only, and throws where its content is another than its digest says. */
type UnpackLayer = (into: Pick<UnpackRequest, 'target' | 'lowers'>) => Promise<Unpacked>

interface LayerOptions {
  field: ImageField
  unpack: Unpack
  signal: AbortSignal
  folder: string
}

/** `chain` is a `sha256:…`. The name is as long as ids may be, and no checkpoint of a sandbox has one like it. */
function layerIdOf(chain: string): string {
  return `oci-${chain.slice('sha256:'.length, 'sha256:'.length + chainDigits)}`
}
