import type { Atoll, Content, RequestOptions } from './atoll.ts'
import { InvalidRequestError, NotFoundError } from './errors.ts'
import { transfer, type TransferOptions } from './transfer.ts'
import type { DirectoryEntry, FileChange, FileInfo, SignedUrl } from './types.ts'
import { changesOf } from './watch.ts'

export interface FileOptions extends RequestOptions {
  /** The user whose rights the call has, and who owns new files. Default the user of the sandbox; `root` may do all. */
  user?: string | undefined
}

/**
 * An absolute path: text, its bytes, or what a call has told, such as an entry of `list`. A name that is no UTF-8 has bytes alone: of an
 * entry these are in `pathBase64`.
 */
export type FilePath = string | Uint8Array | Pick<DirectoryEntry, 'path' | 'pathBase64'>

export interface MoveOptions extends FileOptions {
  /** Replaces what is there; a folder only if it is empty. Default: `ConflictError`. */
  overwrite?: boolean | undefined
}

export interface WatchOptions extends FileOptions {
  /** With all folders below. */
  recursive?: boolean | undefined
  /** Called whenever the watch has begun or begun again. What changes from then on is told. */
  onOpen?: (() => void) | undefined
}

export interface SignOptions extends RequestOptions {
  /** How long the URL works. Default 3600, at most 86 400. */
  expiresInSeconds?: number | undefined
  /** Most bytes of an upload. */
  maxBytes?: number | undefined
}

export interface CopyOptions extends Omit<TransferOptions, 'gitignore'> {
  /** With whose rights files are written in the other sandbox. Default `user`. */
  targetUser?: string | undefined
}

/** The files of a sandbox. Paths are absolute. A hibernated sandbox wakes for each call. */
export class Files {
  readonly #client: Atoll
  readonly #sandboxPath: string
  readonly #path: string

  /** Use `sandbox.files`. */
  constructor(client: Atoll, sandboxPath: string) {
    this.#client = client
    this.#sandboxPath = sandboxPath
    this.#path = `${sandboxPath}/files`
  }

  async read(path: FilePath, options: FileOptions = {}): Promise<Uint8Array> {
    return await this.#client.bytes('GET', this.#path, asked(path, options))
  }

  async readText(path: FilePath, options: FileOptions = {}): Promise<string> {
    return new TextDecoder().decode(await this.read(path, options))
  }

  /** The bytes from `offset` on as they come. `requestTimeoutMs` bounds the wait for the first ones. */
  async readStream(
    path: FilePath,
    { offset = 0, ...options }: FileOptions & { offset?: number } = {},
  ): Promise<ReadableStream<Uint8Array>> {
    const headers: Record<string, string> = offset === 0 ? {} : { Range: `bytes=${offset}-` }
    const { body } = await this.#client.open('GET', this.#path, { ...asked(path, options), headers })
    return body ?? new ReadableStream({ start: (controller) => controller.close() })
  }

  /** Creates or replaces a file, and creates the folders above it. A stream is sent as it comes, in Node and in browsers with HTTP/2, and not repeated. */
  async write(path: FilePath, body: Content, options: FileOptions = {}): Promise<void> {
    await this.#client.json('PUT', this.#path, {
      body,
      // A whole file may take longer than an answer.
      ...(body instanceof ReadableStream ? { requestTimeoutMs: 2 ** 31 - 1 } : {}),
      ...asked(path, options),
    })
  }

  async list(path: FilePath, options: FileOptions = {}): Promise<DirectoryEntry[]> {
    return await this.#client.json('GET', `${this.#path}/list`, asked(path, options))
  }

  /** Creates a folder and those above it. An existing one stays. */
  async makeDir(path: FilePath, options: FileOptions = {}): Promise<void> {
    await this.#client.json('POST', `${this.#path}/mkdir`, { repeat: 'always', ...asked(path, options) })
  }

  /** Removes a file, or a folder with its content. */
  async remove(path: FilePath, options: FileOptions = {}): Promise<void> {
    await this.#client.json('DELETE', this.#path, asked(path, options))
  }

  /** What is at a path; a link is told as such. Throws `NotFoundError`. */
  async stat(path: FilePath, options: FileOptions = {}): Promise<FileInfo> {
    return await this.#client.json('GET', `${this.#path}/stat`, asked(path, options))
  }

  /** Whether there is something at a path, also a link that leads nowhere. */
  async exists(path: FilePath, options: FileOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, options)
      return true
    } catch (error) {
      // Not so where there is no such sandbox.
      if (error instanceof NotFoundError && error.details['field'] === 'path') return false
      throw error
    }
  }

  /** Moves or renames a file, folder or link. The new path is in a folder that exists. */
  async move(from: FilePath, to: FilePath, { overwrite, user, ...options }: MoveOptions = {}): Promise<void> {
    const [source, target] = [pathFields(from), pathFields(to)]
    const json = {
      from: source.path,
      fromBase64: source.pathBase64,
      to: target.path,
      toBase64: target.pathBase64,
      ...{ overwrite, user },
    }
    await this.#client.json('POST', `${this.#path}/move`, { json, ...options })
  }

  /**
   * What changes in a folder from now on, over restarts of the server and sleeps of the sandbox, which it does not wake. After `lost` read
   * the folder again: changes were not seen. It ends with the folder (`ended`) or the sandbox. Throws the reason of `signal`.
   *
   * ```js
   * for await (const { type, path } of sandbox.files.watch('/workspace', { recursive: true })) …
   * ```
   */
  watch(path: FilePath, { recursive, onOpen, ...options }: WatchOptions = {}): AsyncGenerator<FileChange> {
    const { query, ...request } = asked(path, options)
    return changesOf(this.#client, this.#sandboxPath, { query: { ...query, recursive }, onOpen }, request)
  }

  /** The bytes of a file; undefined where there is none. */
  async size(path: FilePath, options: FileOptions = {}): Promise<number | undefined> {
    try {
      const { headers } = await this.#client.open('HEAD', this.#path, asked(path, options))
      return Number(headers.get('content-length'))
    } catch (error) {
      if (error instanceof NotFoundError) return undefined
      // An answer to HEAD has no body.
      if (!(error instanceof InvalidRequestError)) throw error
      const message = `${shown(path)}: is no regular file that can be read`
      throw new InvalidRequestError(message, { code: 'invalid_request', status: 400, cause: error })
    }
  }

  /** A URL by which anybody may write this file once or more, until it expires. */
  async uploadUrl(path: string, options: SignOptions & FileOptions = {}): Promise<SignedUrl> {
    return await this.#sign('upload-url', path, options)
  }

  /** A URL by which anybody may read this file, until it expires. */
  async downloadUrl(path: string, options: SignOptions & FileOptions = {}): Promise<SignedUrl> {
    return await this.#sign('download-url', path, options)
  }

  /**
   * Copies a file, or a folder with all that it holds, from this machine to `remote`. What lies in a folder at `remote` already stays, unless
   * it has the same name. Node only. A fault of this machine is an `AtollError` without a code; its cause says which.
   */
  async upload(local: string, remote: string, options: TransferOptions = {}): Promise<void> {
    await transfer().upload({ client: this.#client, sandboxPath: this.#sandboxPath, ...options }, local, remote)
  }

  /** Copies a file, or a folder with all that it holds, from the sandbox to `local`. See {@link Files.upload}. */
  async download(remote: string, local: string, options: TransferOptions = {}): Promise<void> {
    await transfer().download({ client: this.#client, sandboxPath: this.#sandboxPath, ...options }, remote, local)
  }

  /** Copies a file or folder into the files of another sandbox. It passes through this machine, which keeps nothing of it. Node only. */
  async copy(remote: string, to: Files, target: string, options: CopyOptions = {}): Promise<void> {
    const { targetUser, ...rest } = options
    const source = { client: this.#client, sandboxPath: this.#sandboxPath, ...rest }
    const other = { client: to.#client, sandboxPath: to.#sandboxPath, ...rest, user: targetUser ?? rest.user }
    await transfer().copy(source, remote, other, target)
  }

  /** What a folder holds as a tar archive. Node only. */
  readTar(remote: string, options: TransferOptions = {}): AsyncIterable<Uint8Array> {
    return transfer().readTar({ client: this.#client, sandboxPath: this.#sandboxPath, ...options }, remote)
  }

  /** Unpacks a tar archive in a folder, which is made where it is missing. Node only. */
  async writeTar(
    remote: string,
    archive: AsyncIterable<Uint8Array>,
    options: Omit<TransferOptions, 'exclude' | 'gitignore'> = {},
  ): Promise<void> {
    await transfer().writeTar({ client: this.#client, sandboxPath: this.#sandboxPath, ...options }, remote, archive)
  }

  async #sign(
    what: string,
    path: string,
    { expiresInSeconds, maxBytes, user, ...options }: SignOptions & FileOptions,
  ): Promise<SignedUrl> {
    const json = { path, user, expiresIn: expiresInSeconds, maxBytes }
    return await this.#client.json('POST', `${this.#path}/${what}`, { json, repeat: 'always', ...options })
  }
}

function asked(
  path: FilePath,
  { user, ...options }: FileOptions,
): RequestOptions & { query: Record<string, string | undefined> } {
  return { query: { ...pathFields(path), user }, ...options }
}

function pathFields(path: FilePath): { path?: string; pathBase64?: string } {
  if (typeof path === 'string') return { path }
  if (path instanceof Uint8Array) return { pathBase64: btoa(String.fromCharCode(...path)) }
  return path.pathBase64 === undefined ? { path: path.path } : { pathBase64: path.pathBase64 }
}

function shown(path: FilePath): string {
  if (typeof path === 'string') return path
  return path instanceof Uint8Array ? new TextDecoder().decode(path) : path.path
}
