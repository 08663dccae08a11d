import { closeSync, constants, createReadStream, open as openFile, read as readFile } from 'node:fs'
import { type FileHandle, link, mkdir, open, rm, stat, unlink } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import { promisify } from 'node:util'
import { ServiceError } from '../../errors.ts'
import { newId } from '../../lib/id.ts'
import { namesIn } from '../../lib/missing-files.ts'
import { digestBytes } from './tree.ts'
import type { DigestSet } from './digest-set.ts'

/** What a file costs at least: its inode, its name and a block. */
const fileBytesMin = 16 * 1024
const [opened, readAt] = [promisify(openFile), promisify(readFile)]
const folders = Array.from({ length: 256 }, (_, first) => first.toString(16).padStart(2, '0'))

/**
 * The contents of the contexts of one organisation, as files that are named by their SHA-256: `files/AB/ABCD…`. One is written as a draft, synced,
 * and linked to its name, so what has a name is whole. Its size is charged before it is written.
 */
export class Blobs {
  readonly #dir: string
  #usage: Promise<{ bytes: number }> | undefined

  constructor(dir: string) {
    this.#dir = dir
  }

  /** What a file of this size counts. */
  static chargeOf(size: number): number {
    return Math.max(size, fileBytesMin)
  }

  /** Removes drafts that a crash has left. No other method runs meanwhile. */
  async removeDrafts(): Promise<void> {
    await rm(`${this.#dir}/drafts`, { recursive: true, force: true })
  }

  /** For each of the digests, which are in order, whether its content is missing. */
  async missing(digests: Buffer): Promise<Uint8Array> {
    const count = digests.length / digestBytes
    const missing = new Uint8Array(count).fill(1)
    for (let at = 0; at < count;) {
      const first = digests[at * digestBytes]!
      const names = new Set(await this.#namesIn(folders[first]!))
      for (; at < count && digests[at * digestBytes] === first; at += 1) {
        if (names.has(digests.toString('hex', at * digestBytes, (at + 1) * digestBytes))) missing[at] = 0
      }
    }
    return missing
  }

  open(digest: string): Readable {
    return createReadStream(this.path(digest))
  }

  /** A content at once; undefined if it has another size. Half of what `readFile` costs: without its `fstat`, and a close waits for nothing. */
  async read(digest: string, size: number): Promise<Buffer | undefined> {
    const file = await opened(this.path(digest), 'r')
    try {
      const { buffer, bytesRead } = await readAt(file, Buffer.allocUnsafe(size + 1), 0, size + 1, 0)
      return bytesRead === size ? buffer.subarray(0, size) : undefined
    } finally {
      closeSync(file)
    }
  }

  path(digest: string): string {
    return `${this.#dir}/files/${digest.slice(0, 2)}/${digest}`
  }

  async usedBytes(): Promise<number> {
    return (await this.#used()).bytes
  }

  /** Throws `quota_exceeded` unless one more file of this size fits. */
  async charge(size: number, bytesMax: number): Promise<void> {
    const usage = await this.#used()
    const bytes = Blobs.chargeOf(size)
    if (usage.bytes + bytes > bytesMax) {
      throw new ServiceError('quota_exceeded', `the files of all contexts have more than ${bytesMax} bytes together`)
    }
    usage.bytes += bytes
  }

  async discharge(size: number): Promise<void> {
    ;(await this.#used()).bytes -= Blobs.chargeOf(size)
  }

  /** A file to be written; its owner closes and removes it. */
  async draft(): Promise<{ path: string; file: FileHandle }> {
    const path = `${this.#dir}/drafts/${newId('ctx-')}`
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_APPEND
    try {
      return { path, file: await open(path, flags, 0o600) }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    }
    await mkdir(`${this.#dir}/drafts`, { recursive: true, mode: 0o700 })
    return { path, file: await open(path, flags, 0o600) }
  }

  /** Gives a synced draft, whose digest and size are checked and charged, its name. The draft is gone, also after a failure. */
  async add(draft: string, digest: string, size: number): Promise<void> {
    const target = this.path(digest)
    try {
      await link(draft, target).catch(async (error: NodeJS.ErrnoException) => {
        if (error.code !== 'ENOENT') throw error
        await mkdir(`${this.#dir}/files/${digest.slice(0, 2)}`, { recursive: true, mode: 0o700 })
        await link(draft, target)
      })
    } catch (error) {
      // Another upload was faster, with the same bytes.
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
      await this.discharge(size)
    } finally {
      await unlink(draft)
    }
  }

  /** Removes all contents but these. Nothing that lists contents of this organisation runs meanwhile. */
  async keepOnly(used: DigestSet): Promise<void> {
    const usage = await this.#used()
    for (const folder of folders) {
      for (const name of await this.#namesIn(folder)) {
        if (used.has(Buffer.from(name, 'hex'))) continue
        const path = this.path(name)
        const { size } = await stat(path)
        await unlink(path)
        usage.bytes -= Blobs.chargeOf(size)
      }
    }
  }

  #used(): Promise<{ bytes: number }> {
    this.#usage ??= this.#measure().catch((error: unknown) => {
      this.#usage = undefined
      throw error
    })
    return this.#usage
  }

  /** Indexes are charged too. Drafts are charged by those who write them. */
  async #measure(): Promise<{ bytes: number }> {
    let bytes = 0
    for (const folder of folders.map((name) => `files/${name}`).concat('indexes')) {
      for (const name of await namesIn(`${this.#dir}/${folder}`))
        bytes += Blobs.chargeOf((await stat(`${this.#dir}/${folder}/${name}`)).size)
    }
    return { bytes }
  }

  async #namesIn(folder: string): Promise<string[]> {
    return await namesIn(`${this.#dir}/files/${folder}`)
  }
}
