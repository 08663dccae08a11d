import { createHash } from 'node:crypto'
import { type FileHandle, mkdir, open, rm, unlink } from 'node:fs/promises'
import { arch } from 'node:process'
import { pipeline } from 'node:stream/promises'
import { createGzip } from 'node:zlib'
import { ServiceError } from '../../errors.ts'
import { Semaphore } from '../../lib/async/semaphore.ts'
import { newId } from '../../lib/id.ts'
import { setTarTime } from '../../protocol/tar-writer.ts'
import type { Checkpoint } from '../../sandbox/index.ts'
import { BuildSandbox } from '../build/sandbox.ts'
import type { Image } from '../image.ts'
import { notReady } from '../names.ts'
import { archiveOf, configurationOf, type OciArchive } from './oci-archive.ts'
import { checkpointOfFiles, type ExportContext } from './source.ts'

/** Those of all organisations, and of one. Each has a sandbox and a file. */
const exportsOfAll = 2
const exportsOfOne = 1
const gibibyte = 1024 ** 3
/** As an import takes them. */
const layerBytesMax = 16 * gibibyte
const packedBytesMax = 8 * gibibyte - 64 * 1024
/** How often the disk of the server is asked whether it takes more. */
const checkedEveryBytes = 64 * 1024 ** 2
const readBytes = 256 * 1024
/** What each sandbox has of its own. Mount points would stand there with the owners and times of what is mounted; runtimes make them. */
const skipped = [
  ...['/proc', '/sys', '/dev', '/.atoll', '/run/atoll'],
  ...['/etc/hosts', '/etc/hostname', '/etc/machine-id', '/etc/resolv.conf'],
]

/**
 * Makes OCI archives of images: one layer with all files, and a configuration. The files are packed by the guest of a sandbox that starts from the
 * image and ends with the packing. The packed layer waits in a file without a name, which the kernel removes with its descriptor, also after a
 * crash.
 */
export class ImageExports {
  readonly #context: ExportContext
  readonly #semaphore = new Semaphore({ permits: exportsOfAll, permitsPerKey: exportsOfOne })

  constructor(context: ExportContext) {
    this.#context = context
  }

  /** Removes the file of an export that a crash has cut off before its name was removed. */
  async removeDrafts(): Promise<void> {
    await rm(this.#context.exportDir, { recursive: true, force: true })
  }

  /**
   * Passes the archive of an image on, which is valid until `send` ends. Equal images have equal archives. Throws `conflict` while the image is
   * not ready, `too_large`, `no_capacity`, and what a start from the image throws.
   */
  async export<Result>(
    image: Image,
    send: (archive: OciArchive) => Promise<Result>,
    signal: AbortSignal,
  ): Promise<Result> {
    const { orgId } = image
    if (image.status !== 'ready') throw notReady(image)
    return await this.#semaphore.use(
      async () => {
        const checkpoint = await checkpointOfFiles(this.#context, image)
        const file = await this.#openDraft()
        try {
          const layer = await this.#pack(image, checkpoint, file, signal)
          const config = configurationOf(image, checkpoint, {
            architecture: architectures[arch] ?? arch,
            diffId: layer.diffId,
          })
          const content = () => chunksOf(file, layer.size)
          return await send(archiveOf(image, config, { ...layer, content }))
        } finally {
          await file.close()
        }
      },
      { key: orgId, signal },
    )
  }

  async #openDraft(): Promise<FileHandle> {
    const { exportDir } = this.#context
    await mkdir(exportDir, { recursive: true, mode: 0o700 })
    const path = `${exportDir}/${newId('img-')}`
    const file = await open(path, 'wx+', 0o600)
    await unlink(path)
    return file
  }

  /** Writes the layer to the file. */
  async #pack(image: Image, checkpoint: Checkpoint, file: FileHandle, signal: AbortSignal) {
    const { orgId, memoryMb } = image
    const scope = { context: this.#context, orgId, memoryMb, emit: async () => undefined, signal }
    const files = { hash: createHash('sha256'), bytes: 0 }
    const packed = { hash: createHash('sha256'), bytes: 0 }
    try {
      await using sandbox = await BuildSandbox.start(scope, { checkpointId: checkpoint.id }, memoryMb)
      const options = { skip: skipped, bytesMax: layerBytesMax, signal }
      const tar = await sandbox.files.pack(orgId, sandbox.id, [{ path: '/', name: '' }], options)
      const bound = (bytesMax: number, check: () => void = () => undefined) => ({ bytesMax, check })
      await pipeline(
        tar,
        withRootTime(checkpoint.createdAt),
        counted(files, bound(layerBytesMax)),
        createGzip(),
        counted(packed, bound(packedBytesMax, this.#context.assertDiskTakesData)),
        (chunks: AsyncIterable<Buffer>) => writeAll(file, chunks),
        { signal },
      )
    } catch (error) {
      throw signal.aborted ? signal.reason : error
    }
    return { diffId: digestOf(files), digest: digestOf(packed), size: packed.bytes }
  }
}

/** Node's names of processors, and those of images. */
const architectures: Readonly<Record<string, string>> = { x64: 'amd64' }

async function writeAll(file: FileHandle, chunks: AsyncIterable<Buffer>): Promise<void> {
  for await (const chunk of chunks) await file.writeFile(chunk)
}

/** From the beginning, whoever else reads the file. */
async function* chunksOf(file: FileHandle, size: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < size;) {
    const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(readBytes), 0, readBytes, at)
    if (bytesRead === 0) throw new Error('the file of an export has become shorter')
    at += bytesRead
    yield buffer.subarray(0, bytesRead)
  }
}

const blockBytes = 512

/**
 * Sets the time of the root folder, the first entry of the guest's tar: each start of a sandbox makes something there, and equal images would have
 * different layers.
 */
function withRootTime(time: Date) {
  return async function* (chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    let isFirst = true
    for await (const chunk of chunks) {
      const isRoot = isFirst && chunk.length >= blockBytes && chunk.toString('latin1', 0, 3) === './\0'
      if (isRoot) setTarTime(chunk.subarray(0, blockBytes), Math.floor(time.getTime() / 1000))
      isFirst = false
      yield chunk
    }
  }
}

interface Count {
  hash: ReturnType<typeof createHash>
  bytes: number
}

function digestOf({ hash }: Count): string {
  return `sha256:${hash.digest('hex')}`
}

function counted(count: Count, { bytesMax, check }: { bytesMax: number; check: () => void }) {
  return async function* (chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    let checkedAt = -checkedEveryBytes
    for await (const chunk of chunks) {
      count.hash.update(chunk)
      count.bytes += chunk.length
      if (count.bytes > bytesMax)
        throw new ServiceError('too_large', `the archive would have more than ${bytesMax} bytes`)
      if (count.bytes - checkedAt >= checkedEveryBytes) {
        check()
        checkedAt = count.bytes
      }
      yield chunk
    }
  }
}
