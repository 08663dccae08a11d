/** A disk that is read at rest: that of a checkpoint, or that which a sandbox has now, whether or not it runs. */
export type DiskRef = { checkpointId: string } | { sandboxId: string }

/**
 * Reads folders of disks from outside of their sandboxes. Nothing is started or woken, and no call counts as activity.
 *
 * What a disk holds is hostile. It is read by a process without privileges, network, or a way to write, which follows no link out of the
 * folder and runs nothing of a repository in it (no filters, hooks, external diffs, monitors of its configuration).
 *
 * All methods throw `not_found` for an unknown disk or one whose data is gone, `no_capacity` when the host has no room to compare, and
 * `unavailable` when a comparison takes too long. A folder that a disk lacks is an empty one. An abort ends the work at once.
 */
export interface DiskTrees {
  /**
   * What has to change in the folder of `from` for it to become that of `to`, as git sees it: files that `.gitignore` of either names do not
   * count, contents and modes do, owners and times do not. Files are ordered by path; past a bound `isCut` is set. Without `from` an empty
   * folder is compared. Throws `too_large` for a folder of very many entries, ignored ones included; `patch` does too.
   */
  compare(from: DiskRef | undefined, to: DiskRef, options: CompareOptions): Promise<TreeComparison>

  /**
   * The same as a unified diff that `git apply` takes; of binary files the names alone. UTF-8 as far as the files are. Ends after
   * `patchBytesMax` with a line that says so.
   */
  patch(from: DiskRef, to: DiskRef, options: CompareOptions): AsyncIterable<Uint8Array>

  /**
   * The regular files below an absolute folder, in no order, with their contents. Throws `too_large` for more than `filesMax` of them, or
   * more than `bytesMax` together.
   */
  readFolder(disk: DiskRef, folder: string, bounds: FolderBounds): Promise<FolderFile[]>

  /** Bytes on the disk of the host that deleting the checkpoint would give back: of its disk and memory, what no other shares. */
  uniqueBytes(checkpointIds: readonly string[]): Promise<ReadonlyMap<string, number>>
}

export interface CompareOptions {
  /** Absolute path inside. */
  folder: string
  signal?: AbortSignal | undefined
}

export interface FolderBounds {
  filesMax: number
  bytesMax: number
  signal?: AbortSignal | undefined
}

export interface FolderFile {
  /** Relative to the folder. */
  path: string
  /** Permission bits. */
  mode: number
  content: Uint8Array
}

export interface TreeComparison {
  files: ComparedFile[]
  /** All lines of all files, listed or not. */
  addedLines: number
  removedLines: number
  /** There are more files than are listed. */
  isCut: boolean
}

export interface ComparedFile {
  /** Relative to the folder. Bytes that are no UTF-8 are replaced. */
  path: string
  /** Of a renamed file. */
  oldPath?: string
  change: 'added' | 'modified' | 'deleted' | 'renamed'
  /** Git takes it for binary, or it is longer than git compares: it has no lines. */
  isBinary: boolean
  addedLines: number
  removedLines: number
}

/** Files of one comparison. */
export const comparedFilesMax = 1000
/** Bytes of one patch. */
export const patchBytesMax = 64 * 1024 * 1024
