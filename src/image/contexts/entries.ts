import { TimeSlice } from '../../lib/async/time-slice.ts'
import { bytesOfPath, pathOfBase64, pathOfBytes } from '../../lib/byte-path.ts'
import { sortedInSlices } from '../../lib/sorted.ts'
import type { ContextFile } from '../../protocol/http/images.ts'
import { assertInput } from '../../sandbox/index.ts'
import type { ImageLimits } from '../image.ts'
import { digestBytes } from './tree.ts'

/** An entry of a context. The key is its path with NUL in place of each slash, so that a folder is followed by all below it in the order of keys. */
export interface Entry {
  key: string
  type: 'file' | 'directory' | 'symlink'
  mode: number
  /** Of a file: its bytes, and which of the digests of the context it has. */
  size?: number
  blob?: number
  /** Of a link, bytes in latin1. */
  target?: string
  /** Unix seconds. */
  mtime?: number
}

/** What a client has said of a context, checked and ordered. */
export interface Listing {
  /** By key, with the folders that others imply. */
  entries: Entry[]
  /** Of its contents, each once and in order, `digestBytes` each. */
  digests: Buffer
}

const pathBytesMax = 4096
const nameBytesMax = 255
const depthMax = 128
/** Paths and targets together, those of implied folders too. */
const textBytesMax = 32 * 2 ** 20
/** Implied folders count. */
const entriesPerFile = 2
const impliedMode = 0o755
/** What an error shows of a path. */
const shownLength = 200

/** Of a digest: as many as a number holds exactly. */
const firstBytes = 6

type Given = Entry & { index: number; digest?: string }

/** Throws `invalid_request` with field and path. Yields to the event loop. */
export async function listingOf(
  files: readonly ContextFile[],
  limits: Pick<ImageLimits, 'contextFilesMax' | 'contextBytesMax'>,
): Promise<Listing> {
  const { contextFilesMax, contextBytesMax } = limits
  assertInput(files.length <= contextFilesMax, 'files', `must be at most ${contextFilesMax}`)
  const slice = new TimeSlice()
  const given: Given[] = []
  let bytes = 0
  for (const [index, file] of files.entries()) {
    await slice.next()
    const entry = entryOf(file, index)
    bytes += entry.size ?? 0
    assertInput(bytes <= contextBytesMax, 'files', `have more than ${contextBytesMax} bytes together`)
    given.push(entry)
  }
  const sorted = await sortedInSlices(given, byKey)
  const digests = await numberBlobs(sorted)
  return { entries: await treeOf(sorted, entriesPerFile * contextFilesMax), digests }
}

export function byKey(one: { key: string }, other: { key: string }): number {
  return one.key < other.key ? -1 : one.key > other.key ? 1 : 0
}

/** For people. */
export function shownKey(key: string): string {
  const path = pathOfBytes(Buffer.from(key.replaceAll('\0', '/'), 'latin1')).toWellFormed()
  return path.length > shownLength ? `${path.slice(0, shownLength)}…` : path
}

function entryOf(file: ContextFile, index: number): Given {
  const { type, mode, digest, size, mtime } = file
  const key = keyOf(file, index)
  const at = (name: string) => `files.${index}.${name}`
  const assert = (condition: boolean, name: string, rule: string) => {
    if (!condition) assertInput(false, at(name), `${rule}: ${shownKey(key)}`)
  }
  const isFile = type === 'file'
  assert((digest !== undefined) === isFile, 'digest', isFile ? 'is required of a file' : 'is of files alone')
  assert((size !== undefined) === isFile, 'size', isFile ? 'is required of a file' : 'is of files alone')
  const entry: Given = { key, type, mode, index }
  if (mtime !== undefined) entry.mtime = mtime
  if (isFile) {
    entry.size = size!
    entry.digest = digest!.slice('sha256:'.length)
  }
  const target = bytesOf(file.target, file.targetBase64)
  assert(
    (target !== undefined) === (type === 'symlink'),
    'target',
    type === 'symlink' ? 'is required of a link' : 'is of links alone',
  )
  if (target !== undefined) {
    assert(target.length > 0 && target.length < pathBytesMax, 'target', `must be 1 to ${pathBytesMax - 1} bytes`)
    assert(!target.includes('\0'), 'target', 'must not contain NUL')
    entry.target = target
  }
  return entry
}

function keyOf({ path, pathBase64 }: ContextFile, index: number): string {
  const field = `files.${index}.${pathBase64 === undefined ? 'path' : 'pathBase64'}`
  assertInput(path === undefined || pathBase64 === undefined, field, 'excludes path')
  const bytes = bytesOf(path, pathBase64)
  assertInput(
    bytes !== undefined,
    field,
    pathBase64 === undefined ? 'is required, as text or in base64' : 'must be base64',
  )
  const fault = faultOf(bytes)
  if (fault !== undefined) assertInput(false, field, `${fault}: ${JSON.stringify(shownKey(bytes))}`)
  return bytes.replaceAll('/', '\0')
}

function faultOf(path: string): string | undefined {
  if (path.length === 0 || path.length > pathBytesMax) return `must be 1 to ${pathBytesMax} bytes`
  if (path.includes('\0')) return 'must not contain NUL'
  if (path.startsWith('/')) return 'must be relative'
  const names = path.split('/')
  if (names.length > depthMax) return `must have at most ${depthMax} names`
  for (const name of names) {
    if (name === '') return 'has an empty name'
    if (name === '.' || name === '..') return `must not have ${name}`
    if (name.length > nameBytesMax) return `has a name of more than ${nameBytesMax} bytes`
  }
  return undefined
}

/** Most paths. */
const isAscii = /^[\0-\x7f]*$/

/** In latin1. Undefined for neither, and for what is no path. */
function bytesOf(text: string | undefined, base64: string | undefined): string | undefined {
  if (text !== undefined && base64 === undefined && isAscii.test(text)) return text
  const path = base64 === undefined ? text : pathOfBase64(base64)
  return path === undefined ? undefined : bytesOfPath(path)?.toString('latin1')
}

/** Adds the folders that are not named. Throws for two entries of one path, and for one below what is no folder. */
async function treeOf(sorted: readonly Given[], entriesMax: number): Promise<Entry[]> {
  const entries: Entry[] = []
  /** The folders above the last entry, and it if it is one. */
  const open: string[] = []
  const slice = new TimeSlice()
  let textBytes = 0
  const add = (entry: Entry) => {
    textBytes += entry.key.length + (entry.target?.length ?? 0)
    assertInput(textBytes <= textBytesMax, 'files', `have paths of more than ${textBytesMax} bytes together`)
    assertInput(entries.length < entriesMax, 'files', `make more than ${entriesMax} files and folders`)
    entries.push(entry)
    if (entry.type === 'directory') open.push(entry.key)
  }
  for (const given of sorted) {
    await slice.next()
    const { key, index } = given
    const last = entries.at(-1)
    if (last !== undefined) {
      const fault = last.key === key ? 'is given twice' : isBelowFile(key, last) ? `is below a ${last.type}` : undefined
      if (fault !== undefined) assertInput(false, `files.${index}.path`, `${fault}: ${shownKey(key)}`)
    }
    while (open.length > 0 && !isBelow(key, open.at(-1)!)) open.pop()
    const above = open.at(-1)?.length ?? -1
    for (let end = key.indexOf('\0', above + 1); end !== -1; end = key.indexOf('\0', end + 1)) {
      add({ key: key.slice(0, end), type: 'directory', mode: impliedMode })
    }
    add(entryIn(given))
  }
  return entries
}

function isBelowFile(key: string, { type, key: above }: Entry): boolean {
  return type !== 'directory' && isBelow(key, above)
}

function isBelow(key: string, folder: string): boolean {
  return key.length > folder.length && key.startsWith(folder) && key[folder.length] === '\0'
}

/** Without what only the check needs: it may be kept for hours. */
function entryIn({ key, type, mode, size, blob, target, mtime }: Given): Entry {
  const entry: Entry = { key, type, mode }
  if (size !== undefined) entry.size = size
  if (blob !== undefined) entry.blob = blob
  if (target !== undefined) entry.target = target
  if (mtime !== undefined) entry.mtime = mtime
  return entry
}

/** Gives each file the number of its content. Throws for one content of two sizes. */
async function numberBlobs(given: readonly Given[]): Promise<Buffer> {
  const files = given.filter(({ digest }) => digest !== undefined)
  const slice = new TimeSlice()
  const bytes = Buffer.alloc(files.length * digestBytes)
  // The order of the first bytes is that of nearly all digests: numbers are compared many times faster than texts.
  const firsts = new Float64Array(files.length)
  for (const [at, { digest = '' }] of files.entries()) {
    await slice.next()
    bytes.write(digest, at * digestBytes, 'hex')
    firsts[at] = bytes.readUIntBE(at * digestBytes, firstBytes)
  }
  const digestAt = (at: number) => bytes.subarray(at * digestBytes, (at + 1) * digestBytes)
  const inOrder = (one: number, other: number) =>
    firsts[one]! - firsts[other]! || digestAt(one).compare(digestAt(other))
  const digests = Buffer.alloc(bytes.length)
  let count = 0
  let last: Given | undefined
  for (const at of await sortedInSlices([...files.keys()], inOrder)) {
    await slice.next()
    const file = files[at]!
    if (last?.digest !== file.digest) {
      digestAt(at).copy(digests, count * digestBytes)
      count += 1
    } else if (last?.size !== file.size) {
      const rule = `is not that of another file with its digest: ${shownKey(file.key)}`
      assertInput(false, `files.${file.index}.size`, rule)
    }
    file.blob = count - 1
    last = file
  }
  // A copy: the space of digests that came twice would be kept.
  return Buffer.from(digests.subarray(0, count * digestBytes))
}
