import type { Readable } from 'node:stream'
import type { FileTree } from '../file-tree.ts'

/**
 * The files of a client that `COPY` and `ADD` of a build read. All of them are there, and stay until it is disposed of. Paths are those of
 * `FileTree`; `/` is the context itself.
 */
export interface Context extends FileTree, Disposable {
  readonly id: string
  /** SHA-256 in hex of all entries without their times: equal for equal files. */
  readonly digest: string
  /** The same of one entry with all below it, without its own name. Throws `not_found`. Repeats cost nothing. */
  digestOf(path: string): Promise<string>
  /** The content of a file, never that of a link. Destroy what is not read to its end. Fails with `not_found`. */
  read(path: string): Readable
  /** A tar (ustar, pax) of these entries in this order, those of folders with all below them. Destroy it if it is not read to its end. */
  pack(entries: Iterable<PackedEntry> | AsyncIterable<PackedEntry>, options?: PackOptions): Readable
}

export interface PackedEntry {
  path: string
  /** In the archive, as bytes in latin1, relative, without a trailing slash. Empty: the entry itself is left out, and what is below it has no folder. */
  name: string
}

export interface PackOptions {
  /** Paths that are left out, with all below them. */
  skip?: ReadonlySet<string>
}
