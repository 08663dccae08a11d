/** A tree of files that `COPY` reads: a context, or the disk of a sandbox. Paths are absolute and normal, names bytes in latin1. */
export interface FileTree {
  /** What an error adds about a path that is not there. */
  readonly absence?: string
  /** The entry itself, a link too; undefined when there is none. */
  find(path: string): Promise<TreeEntry | undefined>
  /** The entries of a folder by name. */
  list(path: string): Promise<TreeEntry[]>
}

export interface TreeEntry {
  path: string
  type: 'file' | 'directory' | 'symlink' | 'other'
  mode: number
  /** Of a symbolic link. */
  target?: string
}
