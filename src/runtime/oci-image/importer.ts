import { randomBytes } from 'node:crypto'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import { KeyedMutex } from '../../lib/async/mutex.ts'
import { Semaphore } from '../../lib/async/semaphore.ts'
import { defined } from '../../lib/defined.ts'
import type { ImageSource, ImportedImage } from '../../sandbox/ports/runtime-driver.ts'
import type { Job, WorkGroups } from '../cgroups/work-groups.ts'
import { type DiskPool, importsFolder, type InodeTemplates, type Layer, layerOf, noteOf } from '../disk/index.ts'
import type { HostTool } from '../hostd/index.ts'
import { readArchive, storeArchive, type ImageFiles } from './archive.ts'
import { refuseImage, type ImageField, type ImageLimits } from './limits.ts'
import { chainIds, digestOf, readConfiguration } from './manifest.ts'
import type { Registries } from './registry.ts'
import { unpackerOf, type Unpack, type Unpacked, type UnpackRequest } from './unpack.ts'

/** The image with nothing but mount points. */
const emptyImage = 'scratch'
const chainDigits = 40
/** Owned by ids from 0, like the images of the host. */
const rangeStart = 0

/** What is known of a layer, in a file beside its `upper` folder. */
const layerNote = z.object({
  inodeEnd: z.number().optional(),
  bytes: z.number(),
  files: z.number(),
  isOpaque: z.boolean(),
})
type LayerNote = z.output<typeof layerNote>

/** The record of a checkpoint that is an imported image. */
interface ImageRecord {
  id: string
  kind: 'disk_only'
  base: string
  layers: Layer[]
  sizeBytes: number
}

/** The records of checkpoints. */
interface ImageRecords {
  /** Writes the record that `make` returns. A failure removes what was made. */
  addCheckpoint(id: string, make: () => Promise<ImageRecord>): Promise<{ sizeBytes: number }>
  holdLayers(layers: readonly Layer[]): Promise<() => void>
  inodeEndOf(checkpointId: string): number | undefined
  removeUnused(): Promise<void>
}

interface ImportOptions {
  limits: ImageLimits
  registries: Registries
  images: { current(image: string): Promise<{ base: string }> }
  records: ImageRecords
  pool: DiskPool
  templates: InodeTemplates
  work: WorkGroups
  hostd: HostTool
  log: (message: string) => void
}

interface ImportRequest {
  checkpointId: string
  source: ImageSource
  signal: AbortSignal
  /** Whose permits the import takes. */
  owner: string | undefined
}

/**
 * Makes checkpoints of OCI images. Each layer becomes a layer of the pool, named after the digest of its chain (the layer and all below
 * it), so images that begin alike share layers.
 *
 *     fetched into imports/<id> ──► layers, lowest first: imports/<id>.<n> ── unpacked, verified ── snapshot ──► layers/oci-<chain>
 *                                                                                                      └─► the record, last
 */
export class ImageImporter {
  readonly #options: ImportOptions
  readonly #semaphore: Semaphore
  /**
   * By owner and layer: the second import of a layer waits for the first. Not by layer alone, as any owner can claim that what takes half
   * an hour to unpack is a layer that others import.
   */
  readonly #unpacking = new KeyedMutex()
  /** By layer, while it is put into its place. */
  readonly #placing = new KeyedMutex()

  constructor(options: ImportOptions) {
    this.#options = options
    const permits = options.limits.importsAtOnce
    this.#semaphore = new Semaphore({ permits, permitsPerKey: Math.max(1, permits - 1) })
  }

  /** See `RuntimeDriver.importImage`. */
  import(request: ImportRequest): Promise<ImportedImage> {
    const { work, limits } = this.#options
    return work.use('import', limits.work, (job) => this.#import(job, request))
  }

  async #import(job: Job, { checkpointId, source, signal, owner }: ImportRequest): Promise<ImportedImage> {
    const { limits, records, images, pool } = this.#options
    const field: ImageField = 'reference' in source ? 'image.oci' : 'archive'
    const { base } = await images.current(emptyImage).catch((cause: unknown) => {
      throw new ServiceError('unavailable', `there is no image ${emptyImage}: run npm run setup`, { cause })
    })
    // A refused import of the same id must not remove the folder of the first one.
    const folder = `${importsFolder}/${checkpointId}.${randomBytes(4).toString('hex')}`
    const unpack = unpackerOf(job, { field, limits, hostFolder: pool.path(''), signal })
    let imported: Omit<ImportedImage, 'sizeBytes'> | undefined
    let release: () => void = () => undefined
    try {
      const { sizeBytes } = await records.addCheckpoint(checkpointId, async () => {
        await pool.createSubvolume(folder)
        // For a moment the archive and its unpacked files are both there.
        await pool.limit(folder, 2 * limits.downloadBytesMax)
        // Without a permit: a slow sender would delay imports that have received all.
        const filesOf = await this.#receive(job, pool.path(folder), source, signal)
        const unpackAll = async (): Promise<ImageRecord> => {
          const { digest, config, layers: blobs } = await filesOf(unpack)
          const { diffIds, defaults } = await readConfiguration(config, field)
          if (diffIds.length !== blobs.length) throw refuseImage(field, 'has another number of layers than it says')
          imported = { digest, config: defaults }
          const chain = chainIds(diffIds)
          const parts = diffIds.map((diffId, index) => ({ diffId, blob: blobs[index]!, id: layerIdOf(chain[index]!) }))
          release = await records.holdLayers(parts.map(({ id }) => ({ checkpointId: id, rangeStart })))
          const layers = await this.#addLayers({ field, unpack, signal, folder, owner }, parts)
          return { id: checkpointId, kind: 'disk_only', base, ...layers }
        }
        return await this.#semaphore.use(unpackAll, { signal, ...defined({ key: owner }) })
      })
      if (imported === undefined) throw new Error('an import has ended without an image')
      return { ...imported, sizeBytes }
    } finally {
      release()
      await this.#removeDraft(folder)
      await records.removeUnused()
    }
  }

  /** Waits for all bytes, and returns what then finds the image in them. */
  async #receive(
    job: Job,
    folder: string,
    source: ImageSource,
    signal: AbortSignal,
  ): Promise<(unpack: Unpack) => Promise<ImageFiles>> {
    const { limits, registries } = this.#options
    if ('archive' in source) {
      await storeArchive(source.archive, `${folder}/archive.tar`, limits, signal)
      return (unpack) => readArchive(`${folder}/archive.tar`, `${folder}/archive`, unpack, limits)
    }
    const { digest, manifest, fileOf } = await registries.fetch(job, source, folder, signal)
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
    { field, unpack, signal, folder, owner = '' }: LayerOptions,
    parts: readonly LayerPart[],
  ): Promise<Pick<ImageRecord, 'layers' | 'sizeBytes'>> {
    const { limits, templates } = this.#options
    let layers: Layer[] = []
    let bytes = 0
    let files = 0
    for (const [index, { id, blob, diffId }] of parts.entries()) {
      signal.throwIfAborted()
      const bounds = { bytesMax: limits.bytesMax - bytes, filesMax: limits.filesMax - files }
      const unpackVerified: UnpackLayer = async (into) => {
        const unpacked = await unpack({ blob, ...bounds, ...into })
        if (`sha256:${unpacked.digest}` === diffId) return unpacked
        throw refuseImage(field, `has a layer of another content than its digest ${diffId} says`)
      }
      const make = () => this.#addLayer({ id, draft: `${folder}.${index}`, below: layers }, unpackVerified)
      const note = await this.#unpacking.run(`${owner} ${id}`, make)
      bytes += note.bytes
      files += note.files
      const layer = { checkpointId: id, rangeStart, ...defined({ inodeEnd: note.inodeEnd }) }
      layers = note.isOpaque ? [layer] : [layer, ...layers]
    }
    const end = layers[0]?.inodeEnd
    // Made now, so that the first sandbox need not wait for it.
    if (end !== undefined) await templates.above(end)
    return { layers, sizeBytes: bytes }
  }

  /** Unpacks a new layer. A layer that exists is verified all the same, so that only those who have its content get it. */
  async #addLayer(
    { id, draft, below }: { id: string; draft: string; below: readonly Layer[] },
    unpack: UnpackLayer,
  ): Promise<LayerNote> {
    const { pool, hostd, templates } = this.#options
    if (await pool.has(layerOf(id))) {
      await unpack({})
      return await this.#readNote(id)
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
        // Another owner was first. The layers above must go on from the inode numbers of that layer.
        if (await pool.has(layerOf(id))) return await this.#readNote(id)
        await pool.snapshot(draft, layerOf(id))
        return note
      })
    } finally {
      await this.#removeDraft(draft)
    }
  }

  /** The note of a layer that is in its place. */
  async #readNote(id: string): Promise<LayerNote> {
    const { pool, records } = this.#options
    const note = layerNote.parse(JSON.parse(await readFile(noteOf(pool.path(layerOf(id))), 'utf8')))
    return { ...note, ...defined({ inodeEnd: records.inodeEndOf(id) }) }
  }

  /** Removes a draft. A failure is not thrown, since it would hide the error of the import; the next `open` removes the draft. */
  async #removeDraft(path: string): Promise<void> {
    const { pool, log } = this.#options
    await pool.remove(path).catch((error: unknown) => log(`${path} stays until the next start: ${String(error)}`))
  }
}

interface LayerPart {
  id: string
  blob: string
  /** SHA-256 of the uncompressed layer. */
  diffId: string
}

/** Unpacks or only verifies one layer. Throws when its content does not match its digest. */
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
