import { createHash } from 'node:crypto'
import type { BigIntStats } from 'node:fs'
import { constants, lstat, open, readdir, readlink, type FileHandle } from 'node:fs/promises'
import type { ExcludePatterns, Place } from '../../src/protocol/exclude-patterns.ts'
import { AtollError, withMessage } from './errors.ts'

/** Files that are read at once, each with a buffer. */
const readersMax = 16
export const pieceBytes = 128 * 1024
/** Bounds what is remembered of a folder. A server takes fewer. */
const entriesMax = 1_000_000

/** An entry of a context. Its path is relative, and both are bytes in latin1, since names may be no UTF-8. */
export type ContextEntry = { path: string; mode: number; modifiedSeconds: number } & (
  | { type: 'file'; digest: string; size: number; stamp: string }
  | { type: 'directory' }
  | { type: 'symlink'; target: string }
)

export type ContextFile = Extract<ContextEntry, { type: 'file' }>

export interface ContextFiles {
  entries: ContextEntry[]
  /** Paths of sockets. */
  leftOut: string[]
}

interface ReadOptions {
  signal?: AbortSignal | undefined
  onFile?: ((files: number, total: number) => void) | undefined
  /** What an earlier reading found: a file that is as it was then is not read again. */
  known?: ContextFiles | undefined
}

/**
 * Reads the files of a folder, links as links. Sockets are left out, as Docker does; a device or a pipe is refused. A file that is gone before it is
 * read was not there.
 */
export async function readContext(
  root: string,
  patterns: ExcludePatterns,
  { signal, onFile, known }: ReadOptions = {},
): Promise<ContextFiles> {
  const paths: string[] = []
  for await (const path of pathsIn(root, '', patterns.root, patterns)) {
    signal?.throwIfAborted()
    if (paths.push(path) > entriesMax) throw new AtollError(`${root} holds more than ${entriesMax} files`)
  }
  const digests = new Map(known?.entries.flatMap((one) => (one.type === 'file' ? [[one.stamp, one.digest]] : [])))
  const read: (ContextEntry | undefined)[] = []
  const leftOut: string[] = []
  const waiting = paths.entries()
  let files = 0
  const failed = new AbortController()
  const work = async () => {
    const buffer = Buffer.alloc(pieceBytes)
    for (const [index, path] of waiting) {
      signal?.throwIfAborted()
      if (failed.signal.aborted) return
      const entry = await entryAt(root, path, { buffer, digests })
      if (entry === 'socket') leftOut.push(shownPath(path))
      else read[index] = entry
      onFile?.((files += 1), paths.length)
    }
  }
  const stopping = (error: unknown) => {
    failed.abort()
    throw error
  }
  await Promise.all(Array.from({ length: Math.min(readersMax, paths.length) }, () => work().catch(stopping)))
  return { entries: read.filter((entry) => entry !== undefined), leftOut }
}

/** A path of bytes below a folder of this machine. */
export function bytesOf(root: string, path: string): Buffer {
  return Buffer.concat([Buffer.from(root), Buffer.from(path === '' ? '' : `/${path}`, 'latin1')])
}

/** A path as an error tells it. */
export function shownPath(path: string): string {
  return Buffer.from(path, 'latin1').toString()
}

/** All paths that the patterns leave, folders before what they hold. An excluded folder is there for what it holds alone. */
async function* pathsIn(root: string, folder: string, place: Place, patterns: ExcludePatterns): AsyncGenerator<string> {
  const entries = await readdir(bytesOf(root, folder), { withFileTypes: true, encoding: 'buffer' }).catch(
    (error: unknown) => {
      if (folder !== '' && isGone(error)) return []
      throw unreadable(root, folder, error)
    },
  )
  // The same files make the same list.
  for (const entry of entries.toSorted((one, other) => one.name.compare(other.name))) {
    const name = entry.name.toString('latin1')
    const path = folder === '' ? name : `${folder}/${name}`
    const found = patterns.enter(place, name)
    if (!found.isExcluded) yield path
    if (!entry.isDirectory() || (found.isExcluded && !patterns.mayKeepBelow(found))) continue
    let isTold = !found.isExcluded
    for await (const below of pathsIn(root, path, found, patterns)) {
      if (!isTold) yield path
      isTold = true
      yield below
    }
  }
}

interface Reading {
  buffer: Buffer
  digests: ReadonlyMap<string, string>
}

async function entryAt(root: string, path: string, reading: Reading): Promise<ContextEntry | 'socket' | undefined> {
  const bytes = bytesOf(root, path)
  try {
    const stats = await lstat(bytes, { bigint: true })
    const facts = { path, mode: Number(stats.mode) & 0o7777, modifiedSeconds: Number(stats.mtimeNs / 1_000_000_000n) }
    if (stats.isDirectory()) return { ...facts, type: 'directory' }
    if (stats.isSymbolicLink())
      return { ...facts, type: 'symlink', target: (await readlink(bytes, { encoding: 'buffer' })).toString('latin1') }
    if (stats.isSocket()) return 'socket'
    if (!stats.isFile()) throw new AtollError('it is a device or a pipe: name it in .dockerignore')
    return { ...facts, type: 'file', stamp: stampOf(stats), ...(await contentOf(bytes, stats, reading)) }
  } catch (error) {
    if (isGone(error)) return undefined
    throw unreadable(root, path, error)
  }
}

/** Equal as long as nobody writes to the file or puts another in its place. */
export function stampOf({ dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
  return [dev, ino, size, mtimeNs, ctimeNs].join(' ')
}

async function contentOf(
  path: Buffer,
  stats: BigIntStats,
  { buffer, digests }: Reading,
): Promise<{ digest: string; size: number }> {
  const known = digests.get(stampOf(stats))
  if (known !== undefined) return { digest: known, size: Number(stats.size) }
  const hash = createHash('sha256')
  const file = await openFile(path)
  let size = 0
  try {
    // Of a file that grows, what it was found with: a writer may be faster.
    for (let left = Number(stats.size); left > 0;) {
      const { bytesRead } = await file.read(buffer, 0, Math.min(left, buffer.length), null)
      if (bytesRead === 0) break
      hash.update(buffer.subarray(0, bytesRead))
      size += bytesRead
      left -= bytesRead
    }
  } finally {
    await file.close()
  }
  return { digest: `sha256:${hash.digest('hex')}`, size }
}

/** Opens a file that was one a moment ago: neither a link nor a pipe in its place is followed or waited for. */
export async function openFile(path: Buffer): Promise<FileHandle> {
  return await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
}

function isGone(error: unknown): boolean {
  return ['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')
}

function unreadable(root: string, path: string, error: unknown): AtollError {
  const shown = path === '' ? root : `${root}/${shownPath(path)}`
  return withMessage(error, (reason) => `${shown} cannot be sent: ${reason}`)
}
