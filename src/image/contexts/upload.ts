import { createHash } from 'node:crypto'
import { rm } from 'node:fs/promises'
import { ServiceError } from '../../errors.ts'
import { entriesOf, TarError, type TarEntry } from '../../protocol/tar-reader.ts'
import { boundedArchive } from '../archive-upload.ts'
import type { Blobs } from './blobs.ts'
import { decompressed } from './decompressed.ts'
import { type Entry, shownKey } from './entries.ts'
import type { Tree } from './tree.ts'

/** Files up to this size are read whole and written side by side. */
const smallBytes = 64 * 1024
const writesMax = 8

interface UploadTarget {
  tree: Tree
  blobs: Blobs
  /** By the number of a content, whether it is missing; changed as contents come. */
  missing: Uint8Array
  /** Throws while the disk takes no more data. */
  assertDiskTakesData: () => void
}

interface UploadBounds {
  /** Of the archive, compressed, and of what it holds. */
  archiveBytesMax: number
  /** Of all contents of the organisation. */
  storedBytesMax: number
}

/**
 * Takes the contents that a context lacks from an archive, in a memory that does not depend on it. Each is compared with its digest while it is
 * written. Entries that are no files of the context are passed over; returns how many. What has come before a failure stays.
 */
export async function receive(
  archive: AsyncIterable<Uint8Array>,
  target: UploadTarget,
  { archiveBytesMax, storedBytesMax }: UploadBounds,
): Promise<number> {
  const receiver = new Receiver(target, storedBytesMax)
  const tar = boundedArchive(decompressed(boundedArchive(archive, archiveBytesMax)), archiveBytesMax)
  try {
    for await (const entry of entriesOf(tar)) await receiver.take(entry)
    await receiver.settle()
  } catch (error) {
    if (!(error instanceof TarError)) throw asDiskError(error)
    throw new ServiceError(
      'invalid_request',
      `${error.message}: it must be a tar, plain or compressed with gzip or zstd`,
      {
        cause: error,
      },
    )
  } finally {
    await receiver.settle().catch(() => undefined)
  }
  return receiver.ignored
}

type MissingFile = Entry & { blob: number; size: number }

class Receiver {
  ignored = 0
  readonly #tree: Tree
  readonly #blobs: Blobs
  readonly #missing: Uint8Array
  readonly #assertDiskTakesData: () => void
  readonly #storedBytesMax: number
  readonly #writes = new Set<Promise<void>>()
  #failure: { error: unknown } | undefined

  constructor({ tree, blobs, missing, assertDiskTakesData }: UploadTarget, storedBytesMax: number) {
    this.#tree = tree
    this.#blobs = blobs
    this.#missing = missing
    this.#assertDiskTakesData = assertDiskTakesData
    this.#storedBytesMax = storedBytesMax
  }

  async take({ name, type, size, body }: TarEntry): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure.error
    const key = name
      .replace(/^(?:\.\/+)+/, '')
      .replace(/\/+$/, '')
      .replaceAll('/', '\0')
    const entry = this.#tree.find(key)
    if (entry?.type !== 'file' || type !== 'file') {
      // A link to an earlier entry has its content.
      const isKnown = key === '.' || key === '' || (entry?.type === 'file' ? type === 'hard link' : entry !== undefined)
      if (!isKnown) this.ignored += 1
      return
    }
    const file = entry as MissingFile
    if (this.#missing[file.blob] !== 1) return
    if (size !== file.size) throw changed(file)
    // Another entry with this content need not wait for this one.
    this.#missing[file.blob] = 0
    if (size > smallBytes) return await this.#store(file, body)
    // A copy of one length: parts keep the whole chunk that they were cut from.
    const content = Buffer.concat(await Array.fromAsync(body))
    while (this.#writes.size >= writesMax) await Promise.race(this.#writes)
    const write = this.#store(file, [content]).catch((error: unknown) => {
      this.#failure ??= { error }
    })
    this.#writes.add(write)
    void write.then(() => this.#writes.delete(write))
  }

  /** Waits for all that is being written. Throws the first failure. */
  async settle(): Promise<void> {
    await Promise.all(this.#writes)
    if (this.#failure !== undefined) throw this.#failure.error
  }

  async #store(file: MissingFile, content: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<void> {
    const digest = this.#tree.digestAt(file.blob)
    let isStored = false
    await this.#blobs.charge(file.size, this.#storedBytesMax)
    try {
      await this.#write(file, digest, content)
      isStored = true
    } finally {
      if (!isStored) {
        this.#missing[file.blob] = 1
        await this.#blobs.discharge(file.size)
      }
    }
  }

  async #write(
    file: MissingFile,
    digest: string,
    content: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  ): Promise<void> {
    const draft = await this.#blobs.draft()
    try {
      const hash = createHash('sha256')
      try {
        for await (const part of content) {
          this.#assertDiskTakesData()
          hash.update(part)
          await draft.file.appendFile(part)
        }
        if (hash.digest('hex') !== digest) throw changed(file)
        await draft.file.sync()
      } finally {
        await draft.file.close()
      }
    } catch (error) {
      await rm(draft.path, { force: true })
      throw error
    }
    await this.#blobs.add(draft.path, digest, file.size)
  }
}

function changed({ key }: Entry): ServiceError {
  const path = shownKey(key)
  const message = `${path} changed while it was sent: its content is not that of its digest`
  return new ServiceError('invalid_request', message, { details: { path } })
}

/** `disk_full` for what a full disk throws. */
export function asDiskError(error: unknown): unknown {
  const { code } = error as NodeJS.ErrnoException
  if (code !== 'ENOSPC' && code !== 'EDQUOT') return error
  return new ServiceError('disk_full', 'the disk of the server has no space for the files of the context', {
    cause: error,
  })
}
