import { Readable } from 'node:stream'
import { ServiceError } from '../../errors.ts'
import { defined } from '../../lib/defined.ts'
import { inPieces, tarEnd, tarHeader, tarPadding } from '../../protocol/tar-writer.ts'
import type { TreeEntry } from '../file-tree.ts'
import type { Blobs } from './blobs.ts'
import type { Context, PackedEntry, PackOptions } from './context.ts'
import { type Entry, shownKey } from './entries.ts'
import type { IndexHead } from './index-file.ts'
import type { Tree } from './tree.ts'
import type { LoadedIndex } from './trees.ts'

/** Files up to this size are read at once. */
const smallBytes = 64 * 1024
const pieceBytes = 64 * 1024
const readsAhead = 16
const root: Entry = { key: '', type: 'directory', mode: 0o755 }

interface OpenedContext {
  id: string
  head: IndexHead
  /** Not kept: builds wait with their context, and it may be large. */
  load: () => Promise<LoadedIndex>
  blobs: Blobs
}

/** A context whose contents are all there. `hold` keeps it. */
export class HeldContext implements Context {
  readonly absence = ': it is not in the folder, or the ignore file leaves it out'
  readonly id: string
  readonly digest: string
  readonly #createdAt: number
  readonly #load: () => Promise<LoadedIndex>
  readonly #blobs: Blobs
  readonly #hold: Disposable
  readonly #digests = new Map<string, Promise<string>>()

  constructor({ id, head, load, blobs }: OpenedContext, hold: Disposable) {
    this.id = id
    this.digest = head.digest
    this.#createdAt = head.createdAt
    this.#load = load
    this.#blobs = blobs
    this.#hold = hold
    this.#digests.set('', Promise.resolve(head.digest))
  }

  async find(path: string): Promise<TreeEntry | undefined> {
    const entry = findIn(await this.#tree(), keyOf(path))
    return entry && treeEntry(entry)
  }

  async list(path: string): Promise<TreeEntry[]> {
    const tree = await this.#tree()
    const folder = entryIn(tree, path)
    if (folder.type !== 'directory') {
      throw new ServiceError('not_found', `${shownKey(folder.key)} is no folder of the context`)
    }
    return Array.from(tree.children(folder.key), treeEntry)
  }

  async digestOf(path: string): Promise<string> {
    const key = keyOf(path)
    const digest = this.#digests.get(key) ?? this.#tree().then((tree) => tree.digestOf(entryIn(tree, path)))
    this.#digests.set(key, digest)
    return await digest
  }

  read(path: string): Readable {
    return Readable.from(this.#contentOf(path), { objectMode: false })
  }

  pack(entries: Iterable<PackedEntry> | AsyncIterable<PackedEntry>, { skip = new Set() }: PackOptions = {}): Readable {
    const skipped = new Set(Array.from(skip, keyOf))
    return Readable.from(inPieces(this.#parts(entries, skipped), pieceBytes), {
      objectMode: false,
      highWaterMark: pieceBytes,
    })
  }

  [Symbol.dispose](): void {
    this.#hold[Symbol.dispose]()
  }

  async #tree(): Promise<Tree> {
    return (await this.#load()).tree
  }

  async *#contentOf(path: string): AsyncGenerator<Buffer> {
    const tree = await this.#tree()
    const { blob, key } = entryIn(tree, path)
    if (blob === undefined) throw new ServiceError('not_found', `${shownKey(key)} is no file of the context`)
    yield* this.#blobs.open(tree.digestAt(blob)) as AsyncIterable<Buffer>
  }

  /** Small files are read ahead: each costs some waits for the disk. */
  async *#parts(
    entries: Iterable<PackedEntry> | AsyncIterable<PackedEntry>,
    skipped: ReadonlySet<string>,
  ): AsyncGenerator<Buffer[]> {
    const tree = await this.#tree()
    const ahead: Packed[] = []
    for await (const { path, name } of entries) {
      for (const selected of below(tree, entryIn(tree, path), name, skipped)) {
        ahead.push(this.#packed(tree, selected))
        if (ahead.length < readsAhead) continue
        const packed = ahead.shift()!
        if ('whole' in packed) yield await packed.whole
        else yield* packed.parts
      }
    }
    for (const packed of ahead) {
      if ('whole' in packed) yield await packed.whole
      else yield* packed.parts
    }
    yield [tarEnd]
  }

  #packed(tree: Tree, { entry, name }: Selected): Packed {
    const { key, type, mode, size = 0, blob, target, mtime } = entry
    const modifiedSeconds = mtime ?? this.#createdAt
    const header = tarHeader({ type, name, mode, size, ...defined({ target }), modifiedSeconds })
    if (blob === undefined) return { whole: [header] }
    const digest = tree.digestAt(blob)
    // A reader of the archive would take what follows for content.
    const wrong = () => new Error(`the content of ${shownKey(key)} has another size than ${size}`)
    if (size > smallBytes) return { parts: largeFile(header, () => this.#blobs.open(digest), { size, wrong }) }
    const whole = this.#blobs.read(digest, size).then((content) => {
      if (content === undefined) throw wrong()
      return [header, content, tarPadding(size)]
    })
    // Nobody may come to wait for it.
    whole.catch(() => undefined)
    return { whole }
  }
}

interface Selected {
  entry: Entry
  name: string
}

/** An entry in an archive: all of it at once, or in parts that are read when they are asked for. */
type Packed = { whole: Buffer[] | Promise<Buffer[]> } | { parts: AsyncGenerator<Buffer[]> }

async function* largeFile(
  header: Buffer,
  open: () => AsyncIterable<Buffer>,
  { size, wrong }: { size: number; wrong: () => Error },
): AsyncGenerator<Buffer[]> {
  yield [header]
  let bytes = 0
  for await (const part of open()) {
    bytes += part.length
    if (bytes > size) break
    yield [part]
  }
  if (bytes !== size) throw wrong()
  yield [tarPadding(size)]
}

/** What is packed of an entry, under its names. */
function* below(tree: Tree, entry: Entry, name: string, skipped: ReadonlySet<string>): Generator<Selected> {
  if (skipped.has(entry.key)) return
  if (name !== '') yield { entry, name }
  if (entry.type !== 'directory') return
  const nameAt = entry.key === '' ? 0 : entry.key.length + 1
  for (const found of tree.below(entry.key, skipped)) {
    const nameBelow = found.key.slice(nameAt).replaceAll('\0', '/')
    yield { entry: found, name: name === '' ? nameBelow : `${name}/${nameBelow}` }
  }
}

function entryIn(tree: Tree, path: string): Entry {
  const key = keyOf(path)
  const entry = findIn(tree, key)
  if (entry === undefined) throw new ServiceError('not_found', `${shownKey(key)} is not in the context`)
  return entry
}

function findIn(tree: Tree, key: string): Entry | undefined {
  return key === '' ? root : tree.find(key)
}

function keyOf(path: string): string {
  return path.slice(1).replaceAll('/', '\0')
}

function treeEntry({ key, type, mode, target }: Entry): TreeEntry {
  const entry: TreeEntry = { path: `/${key.replaceAll('\0', '/')}`, type, mode }
  if (target !== undefined) entry.target = target
  return entry
}
