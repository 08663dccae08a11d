import type { Atoll, RequestOptions } from './atoll.ts'

/** How far a transfer is. */
export interface TransferProgress {
  bytes: number
  /** Absent for a folder, whose size is known at its end. */
  total?: number | undefined
}

export interface TransferOptions extends Pick<RequestOptions, 'signal'> {
  /** With whose rights files are reached in the sandbox. Default the user of the sandbox. */
  user?: string | undefined
  /**
   * What stays out of a folder, in the form of `gitignore(5)`. Out of a sandbox without `!`; such a copy needs `find` and GNU tar there.
   */
  exclude?: readonly string[] | undefined
  /** Leaves out what the `.gitignore` files of a folder on this machine name, and `.git`. Default false. */
  gitignore?: boolean | undefined
  /** Called for each piece that has arrived. */
  onProgress?: ((progress: TransferProgress) => void) | undefined
}

/** The side of a transfer that is in a sandbox. */
export interface Remote extends TransferOptions {
  client: Atoll
  /** The path of the sandbox in the API. */
  sandboxPath: string
}

/** How a path in a sandbox is named in errors. */
export function nameOf({ sandboxPath }: Remote, path: string): string {
  return `${sandboxPath.slice(sandboxPath.lastIndexOf('/') + 1)}:${path}`
}

export interface Transfer {
  upload(remote: Remote, local: string, target: string): Promise<void>
  download(remote: Remote, source: string, local: string): Promise<void>
  copy(from: Remote, source: string, to: Remote, target: string): Promise<void>
  readTar(remote: Remote, folder: string): AsyncIterable<Uint8Array>
  writeTar(remote: Remote, folder: string, archive: AsyncIterable<Uint8Array>): Promise<void>
}

let current: Transfer | undefined

/** The transfer of files between this machine and a sandbox, as the entry of the package has set. Throws `TypeError` in browsers. */
export function transfer(): Transfer {
  if (current === undefined) throw new TypeError('a browser has no files: use files.read and files.write')
  return current
}

/** Called by the entry for Node. */
export function transferWith(implementation: Transfer): void {
  current = implementation
}
