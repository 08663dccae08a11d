import { chmod, link, lstat, mkdir, open, symlink, unlink } from 'node:fs/promises'
import type { Stats } from 'node:fs'
import { AtollError } from './errors.ts'
import { entriesOf, TarError, type TarEntry } from '../../src/protocol/tar-reader.ts'

/** Files up to this size are written side by side. */
const smallBytes = 64 * 1024
const writesMax = 16
/** Bounds what is remembered of an archive that has no end. */
const foldersMax = 100_000
const refusedShown = 3

/**
 * Writes what an archive has below a folder of this machine, and nothing anywhere else, whatever the archive says: names with `..` and
 * absolute ones are refused, and so is a way through a link, be it of the archive or of the folder. Files are made anew, never written
 * into. Links are made as they are. Devices, pipes and sparse files are refused. The rest is written before a refusal is thrown.
 */
export async function unpackArchive(archive: AsyncIterable<Uint8Array>, folder: string): Promise<void> {
  await mkdir(folder, { recursive: true })
  const place = new Place(folder)
  try {
    for await (const entry of entriesOf(archive)) await place.take(entry)
  } catch (error) {
    throw error instanceof TarError ? new AtollError(error.message, { cause: error }) : error
  } finally {
    await place.settle()
  }
  await place.finish()
}

/** Why an entry is not written. */
class Refusal extends Error {}

class Place {
  readonly #folder: string
  /** Ways that lead over folders alone. */
  readonly #known = new Set<string>()
  /** Files that are being written, by their way. */
  readonly #writes = new Map<string, Promise<void>>()
  readonly #closed: { path: Buffer; mode: number }[] = []
  readonly #refused: string[] = []
  #refusals = 0
  #failure: { error: unknown } | undefined

  constructor(folder: string) {
    this.#folder = folder
  }

  async take(entry: TarEntry): Promise<void> {
    this.#assertSound()
    try {
      const parts = partsOf(entry.name)
      const way = parts.join('/')
      const isSmall = entry.type === 'file' && entry.size <= smallBytes
      // Others may need what is being written.
      if (!isSmall || this.#writes.has(way)) await this.settle()
      this.#assertSound()
      if (entry.type === 'folder') return await this.#makeFolder(parts, entry.mode)
      if (parts.length === 0) throw new Refusal('has no name')
      await this.#assertFolders(parts.slice(0, -1), mkdir)
      await this.#write(way, entry, isSmall)
    } catch (error) {
      this.#failed(entry.name, error)
      if (this.#failure !== undefined) throw error
    }
  }

  #assertSound(): void {
    if (this.#failure !== undefined) throw this.#failure.error
  }

  #failed(name: string, error: unknown): void {
    if (!(error instanceof Refusal)) {
      this.#failure ??= { error }
      return
    }
    this.#refusals += 1
    if (this.#refused.length < refusedShown) this.#refused.push(`${shown(name)} ${error.message}`)
  }

  /** Waits for all that is being written. */
  async settle(): Promise<void> {
    await Promise.all(this.#writes.values())
  }

  async finish(): Promise<void> {
    this.#assertSound()
    for (const { path, mode } of this.#closed.toReversed()) await chmod(path, mode)
    if (this.#refusals === 0) return
    const more = this.#refusals - this.#refused.length
    throw new AtollError(`not copied: ${this.#refused.join('; ')}${more > 0 ? `; and ${more} more` : ''}`)
  }

  async #write(way: string, entry: TarEntry, isSmall: boolean): Promise<void> {
    const path = this.#pathOf(way)
    switch (entry.type) {
      case 'file': {
        if (!isSmall) return await writeFile(path, entry, entry.body)
        const content: Uint8Array[] = []
        for await (const part of entry.body) content.push(part)
        if (this.#writes.size >= writesMax) await Promise.race(this.#writes.values())
        const written = writeFile(path, entry, content)
          .catch((error: unknown) => this.#failed(entry.name, error))
          .finally(() => this.#writes.delete(way))
        this.#writes.set(way, written)
        return
      }
      case 'link':
        await makeWay(path)
        return await symlink(Buffer.from(entry.target, 'latin1'), path)
      case 'hard link': {
        const source = partsOf(entry.target)
        await this.#assertFolders(source.slice(0, -1))
        const from = this.#pathOf(source.join('/'))
        if (!(await found(from))?.isFile()) throw new Refusal('is another name of no file')
        if (from.equals(path)) return
        await makeWay(path)
        return await link(from, path)
      }
      case 'folder':
      case 'other':
      default:
        throw new Refusal('is a device, a pipe or a sparse file')
    }
  }

  async #makeFolder(parts: string[], mode: number): Promise<void> {
    if (parts.length === 0) return
    await this.#assertFolders(parts.slice(0, -1), mkdir)
    const path = this.#pathOf(parts.join('/'))
    const isNew = (await found(path)) === undefined
    // What comes into it needs the rights of its owner.
    if (isNew) await mkdir(path, { mode: (mode & 0o777) | 0o700 })
    await this.#assertFolders(parts)
    if (isNew && (mode & 0o700) !== 0o700 && this.#closed.length < foldersMax) {
      this.#closed.push({ path, mode: mode & 0o777 & ~process.umask() })
    }
  }

  /** Each part must be a folder itself, no link to one. */
  async #assertFolders(parts: string[], make?: typeof mkdir): Promise<void> {
    if (this.#known.has(parts.join('/'))) return
    for (let count = 1; count <= parts.length; count += 1) {
      const way = parts.slice(0, count).join('/')
      if (this.#known.has(way)) continue
      const path = this.#pathOf(way)
      const stats = await found(path)
      if (stats === undefined && make !== undefined) await make(path)
      else if (stats?.isDirectory() !== true) throw new Refusal(`leads over ${shown(way)}, which is no folder here`)
      if (this.#known.size >= foldersMax) this.#known.clear()
      this.#known.add(way)
    }
  }

  #pathOf(way: string): Buffer {
    return Buffer.concat([Buffer.from(`${this.#folder}/`), Buffer.from(way, 'latin1')])
  }
}

/** The names on the way from the folder. */
function partsOf(name: string): string[] {
  if (name.startsWith('/')) throw new Refusal('is absolute')
  const parts = name.split('/').filter((part) => part !== '' && part !== '.')
  if (parts.includes('..')) throw new Refusal('leads out of the folder')
  if (process.platform === 'win32' && /[\\:]/.test(name)) throw new Refusal('is no name here')
  return parts
}

async function found(path: Buffer): Promise<Stats | undefined> {
  try {
    return await lstat(path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

/** Removes what has the name; a folder stays. */
async function makeWay(path: Buffer): Promise<void> {
  const stats = await found(path)
  if (stats === undefined) return
  if (stats.isDirectory()) throw new Refusal('is a folder here')
  await unlink(path)
}

async function writeFile(
  path: Buffer,
  { mode, modifiedSeconds }: TarEntry,
  content: AsyncIterable<Uint8Array> | Uint8Array[],
): Promise<void> {
  await makeWay(path)
  // Exclusive, so that it follows no link. Without bits that give rights.
  const file = await open(path, 'wx', mode & 0o777)
  try {
    for await (const part of content) await file.writeFile(part)
    if (Number.isFinite(modifiedSeconds)) await file.utimes(modifiedSeconds, modifiedSeconds)
  } finally {
    await file.close()
  }
}

function shown(name: string): string {
  return Buffer.from(name, 'latin1').toString()
}
