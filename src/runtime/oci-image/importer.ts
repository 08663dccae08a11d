import { randomBytes } from 'node:crypto'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import { KeyedMutex } from '../../lib/async/mutex.ts'
import { Semaphore } from '../../lib/async/semaphore.ts'
import { defined } from '../../lib/defined.ts'
import type { ImageSource, ImportedImage } from '../../sandbox/ports/runtime-driver.ts'
import type { Job } from '../cgroups/work-groups.ts'
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
  /** Whose permits it takes. */
  owner: string | undefined
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
  /**
   * By owner and layer: the second import of one waits for the first. Not by layer alone, as anybody can say that what takes half an hour to
   * unpack is a layer that others import.
   */
  readonly #unpacking = new KeyedMutex()
  /** By layer: while one is put into its place. */
  readonly #placing = new KeyedMutex()

  constructor({ limits, registries }: ImportOptions) {
    this.#limits = limits
    this.#registries = registries
    const permits = limits.importsAtOnce
    this.#semaphore = new Semaphore({ permits, permitsPerKey: Math.max(1, permits - 1) })
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
  import(host: OpenHost, request: ImportRequest): Promise<ImportedImage> {
    return host.work.use('import', this.#limits.work, (job) => this.#import(host, job, request))
  }

  async #import(
    host: OpenHost,
    job: Job,
    { checkpointId, source, signal, owner }: ImportRequest,
  ): Promise<ImportedImage> {
    const { inventory, images, pool } = host
    const field: ImageField = 'reference' in source ? 'image.oci' : 'archive'
    const { base } = await images.current(emptyImage).catch((cause: unknown) => {
      throw new ServiceError('unavailable', `there is no image ${emptyImage}: run npm run setup`, { cause })
    })
    // A refused import of the same id must not remove what the first one has.
    const folder = `${importsFolder}/${checkpointId}.${randomBytes(4).toString('hex')}`
    const unpack = unpackerOf(job, { field, limits: this.#limits, hostFolder: pool.path(''), signal })
    let imported: Omit<ImportedImage, 'sizeBytes'> | undefined
    let release: () => void = () => undefined
    try {
      const { sizeBytes } = await inventory.addCheckpoint(checkpointId, async () => {
        await pool.createSubvolume(folder)
        // An archive is there twice for a moment.
        await pool.limit(folder, 2 * this.#limits.downloadBytesMax)
        // Without a permit: a slow sender would hold up those who have sent.
        const filesOf = await this.#receive(job, pool.path(folder), source, signal)
        const unpackAll = async (): Promise<CheckpointRecord> => {
          const { digest, config, layers: blobs } = await filesOf(unpack)
          const { diffIds, defaults } = await readConfiguration(config, field)
          if (diffIds.length !== blobs.length) throw refuseImage(field, 'has another number of layers than it says')
          imported = { digest, config: defaults }
          const chain = chainIds(diffIds)
          const parts = diffIds.map((diffId, index) => ({ diffId, blob: blobs[index]!, id: layerIdOf(chain[index]!) }))
          release = await inventory.holdLayers(parts.map(({ id }) => ({ checkpointId: id, rangeStart })))
          const layers = await this.#addLayers(host, { field, unpack, signal, folder, owner }, parts)
          return { id: checkpointId, kind: 'disk_only', base, ...layers }
        }
        return await this.#semaphore.use(unpackAll, { signal, ...defined({ key: owner }) })
      })
      if (imported === undefined) throw new Error('an import has ended without an image')
      return { ...imported, sizeBytes }
    } finally {
      release()
      await removeDraft(host, folder)
      await inventory.removeUnused()
    }
  }

  /** Returns once all bytes are there; then the image can be found in them. */
  async #receive(
    job: Job,
    folder: string,
    source: ImageSource,
    signal: AbortSignal,
  ): Promise<(unpack: Unpack) => Promise<ImageFiles>> {
    if ('archive' in source) {
      await storeArchive(source.archive, `${folder}/archive.tar`, this.#limits, signal)
      return (unpack) => readArchive(`${folder}/archive.tar`, `${folder}/archive`, unpack, this.#limits)
    }
    const { digest, manifest, fileOf } = await this.#registries.fetch(job, source.reference, folder, signal)
    return async () => {
      const config = await readFile(fileOf(manifest.config.digest))
      if ((await digestOf(config)) !== manifest.config.digest) {
        throw refuseImage('image.oci', 'has another configuration than its digest says')
      }
      const layers = manifest.layers.map((layer) => fileOf(layer.digest))
      return { digest, config, layers }
    }
  }

  /** `parts` are the layers of the image, lowest first. Returns them as a record names them, and their size. */
  async #addLayers(
    host: OpenHost,
    { field, unpack, signal, folder, owner = '' }: LayerOptions,
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
      const note = await this.#unpacking.run(`${owner} ${id}`, make)
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
    const { pool, hostd, templates } = host
    if (await pool.has(layerOf(id))) {
      await unpack({})
      return await readNote(host, id)
    }
    const above = below[0]?.inodeEnd ?? 0
    try {
      await pool.createSubvolume(draft, above === 0 ? undefined : await templates.below(above))
      const path = pool.path(draft)
      // Layers of one disk share no inode number, see `InodeTemplates`.
      if (above > 0) await hostd.runTool({ op: 'raise-inode-numbers', dir: path, from: above })
      await mkdir(`${path}/upper`, { mode: 0o755 })
      const lowers = below.map((layer) => pool.path(`${layerOf(layer.checkpointId)}/upper`))
      const { bytes, files, isOpaque } = await unpack({ target: `${path}/upper`, lowers })
      const inodeEnd = await pool.nextInode(draft)
      const note = { bytes, files, isOpaque, ...defined({ inodeEnd }) }
      await writeFile(noteOf(path), JSON.stringify(note), { mode: 0o600 })
      return await this.#placing.run(id, async () => {
        // Another owner was first. What lies above it must go on from its inode numbers.
        if (await pool.has(layerOf(id))) return await readNote(host, id)
        await pool.snapshot(draft, layerOf(id))
        return note
      })
    } finally {
      await removeDraft(host, draft)
    }
  }
}

/** Of a layer that is in its place. */
async function readNote({ pool, inventory }: OpenHost, id: string): Promise<LayerNote> {
  const note = layerNote.parse(JSON.parse(await readFile(noteOf(pool.path(layerOf(id))), 'utf8')))
  return { ...note, ...defined({ inodeEnd: inventory.inodeEndOf(id) }) }
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
  owner: string | undefined
}

/** `chain` is a `sha256:…`. The name is as long as ids may be, and no checkpoint of a sandbox has one like it. */
function layerIdOf(chain: string): string {
  return `oci-${chain.slice('sha256:'.length, 'sha256:'.length + chainDigits)}`
}
