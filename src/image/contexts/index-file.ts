import { createHash } from 'node:crypto'
import { type FileHandle, open, readFile } from 'node:fs/promises'
import { TimeSlice } from '../../lib/async/time-slice.ts'
import { idFrom } from '../../lib/id.ts'
import type { Entry, Listing } from './entries.ts'
import { digestBytes, Tree } from './tree.ts'

/** What an index says of its context. */
export interface IndexHead {
  /** Of the context without times, in hex. */
  digest: string
  /** How many digests of contents follow, and then how many entries. */
  blobs: number
  entries: number
  /** Unix seconds: the time of entries that have none. */
  createdAt: number
}

type Row = [
  key: string,
  type: Entry['type'],
  mode: number,
  content: number | string | null,
  size: number,
  mtime: number | null,
]

const version = 1
/** No head is longer. */
const headBytesMax = 1024
const pieceLength = 256 * 1024
const readBytes = 64 * 1024 * digestBytes

/**
 * An index is one file: a head, a line of JSON; the digests of its contents in order, 32 bytes each; a line of JSON for each entry. It is
 * written whole before it has its name, so whoever finds it finds all of it. `id` depends on all that is said of the files.
 */
export async function writeIndex(
  file: FileHandle,
  orgId: string,
  { entries, digests }: Listing,
): Promise<{ id: string; bytes: number; tree: Tree }> {
  const tree = new Tree(entries, digests)
  const digest = await tree.digestOf({ key: '', type: 'directory', mode: 0 })
  const head: IndexHead = {
    digest,
    blobs: digests.length / digestBytes,
    entries: entries.length,
    createdAt: Math.floor(Date.now() / 1000),
  }
  const hash = createHash('sha256').update(`${orgId}\0`)
  let bytes = 0
  const write = async (piece: Buffer, isHashed = true) => {
    if (isHashed) hash.update(piece)
    bytes += piece.length
    await file.appendFile(piece)
  }
  await write(Buffer.from(`${JSON.stringify({ version, ...head })}\n`), false)
  await write(tree.digests)
  const slice = new TimeSlice()
  let text = ''
  for (const { key, type, mode, blob, size = 0, target, mtime } of entries) {
    await slice.next()
    const row: Row = [key, type, mode, blob ?? target ?? null, size, mtime ?? null]
    text += `${JSON.stringify(row)}\n`
    if (text.length < pieceLength) continue
    await write(Buffer.from(text))
    text = ''
  }
  await write(Buffer.from(text))
  await file.sync()
  return { id: idOf(hash.digest()), bytes, tree }
}

export async function readHead(path: string): Promise<IndexHead> {
  await using file = await open(path)
  return (await headIn(file)).head
}

/** Calls `take` with some of the digests at a time. */
export async function readDigests(path: string, take: (digests: Buffer) => Promise<void>): Promise<void> {
  await using file = await open(path)
  const { head, end } = await headIn(file)
  const until = end + head.blobs * digestBytes
  for (let at = end; at < until;) {
    const part = Buffer.alloc(Math.min(readBytes, until - at))
    const read = await file.read(part, { position: at })
    if (read.bytesRead < part.length) throw new Error(`the index ${path} ends early`)
    await take(part)
    at += part.length
  }
}

export async function readIndex(path: string): Promise<{ head: IndexHead; tree: Tree }> {
  const bytes = await readFile(path)
  const { head, end } = headOf(bytes)
  // A copy: the whole of the file would be kept with it.
  const digests = Buffer.from(bytes.subarray(end, end + head.blobs * digestBytes))
  const entries: Entry[] = []
  const slice = new TimeSlice()
  for (let at = end + digests.length; at < bytes.length;) {
    await slice.next()
    const until = bytes.indexOf(0x0a, at)
    const [key, type, mode, content, size, mtime] = JSON.parse(bytes.toString('utf8', at, until)) as Row
    const entry: Entry = { key, type, mode }
    if (typeof content === 'number') Object.assign(entry, { blob: content, size })
    else if (content !== null) entry.target = content
    if (mtime !== null) entry.mtime = mtime
    entries.push(entry)
    at = until + 1
  }
  return { head, tree: new Tree(entries, digests) }
}

async function headIn(file: FileHandle): Promise<{ head: IndexHead; end: number }> {
  const { buffer, bytesRead } = await file.read(Buffer.alloc(headBytesMax), { position: 0 })
  return headOf(buffer.subarray(0, bytesRead))
}

function headOf(bytes: Buffer): { head: IndexHead; end: number } {
  const end = bytes.indexOf(0x0a) + 1
  return { head: JSON.parse(bytes.toString('utf8', 0, end)) as IndexHead, end }
}

/** The same for the same hash. */
function idOf(hash: Buffer): string {
  let count = 0
  return idFrom('ctx-', () => createHash('sha256').update(hash).update(String(count++)).digest())
}
