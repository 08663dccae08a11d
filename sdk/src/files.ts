import type { Atoll, Content, RequestOptions } from './atoll.ts'
import { NotFoundError } from './errors.ts'
import type { DirectoryEntry, SignedUrl } from './types.ts'

export interface SignOptions extends RequestOptions {
  /** How long the URL works. Default 3600, at most 86 400. */
  expiresInSeconds?: number | undefined
  /** Bounds an upload. */
  maxBytes?: number | undefined
}

/** The files of a sandbox. Paths are absolute. A hibernated sandbox wakes for each call. */
export class Files {
  readonly #client: Atoll
  readonly #path: string

  /** Of `sandbox.files`. */
  constructor(client: Atoll, sandboxPath: string) {
    this.#client = client
    this.#path = `${sandboxPath}/files`
  }

  async read(path: string, options: RequestOptions = {}): Promise<Uint8Array> {
    return await this.#client.bytes('GET', this.#path, { query: { path }, ...options })
  }

  async readText(path: string, options: RequestOptions = {}): Promise<string> {
    return new TextDecoder().decode(await this.read(path, options))
  }

  /** The bytes from `offset` on as they come. `requestTimeoutMs` bounds the wait for the first ones. */
  async readStream(
    path: string,
    { offset = 0, ...options }: RequestOptions & { offset?: number } = {},
  ): Promise<ReadableStream<Uint8Array>> {
    const headers: Record<string, string> = offset === 0 ? {} : { Range: `bytes=${offset}-` }
    const { body } = await this.#client.open('GET', this.#path, { query: { path }, headers, ...options })
    return body ?? new ReadableStream({ start: (controller) => controller.close() })
  }

  /**
   * Creates a file or takes the place of one, with the folders above it. A stream is sent as it comes, in Node and in browsers with
   * HTTP/2, and not repeated.
   */
  async write(path: string, body: Content, options: RequestOptions = {}): Promise<void> {
    await this.#client.json('PUT', this.#path, {
      query: { path },
      body,
      // A whole file may take longer than an answer.
      ...(body instanceof ReadableStream ? { requestTimeoutMs: 2 ** 31 - 1 } : {}),
      ...options,
    })
  }

  async list(path: string, options: RequestOptions = {}): Promise<DirectoryEntry[]> {
    return await this.#client.json('GET', `${this.#path}/list`, { query: { path }, ...options })
  }

  /** With the folders above it. One that is there stays. */
  async makeDir(path: string, options: RequestOptions = {}): Promise<void> {
    await this.#client.json('POST', `${this.#path}/mkdir`, { query: { path }, repeat: 'always', ...options })
  }

  /** A folder goes with all that it holds. */
  async remove(path: string, options: RequestOptions = {}): Promise<void> {
    await this.#client.json('DELETE', this.#path, { query: { path }, ...options })
  }

  /** The bytes of a file; undefined where there is none. */
  async size(path: string, options: RequestOptions = {}): Promise<number | undefined> {
    try {
      const { headers } = await this.#client.open('HEAD', this.#path, { query: { path }, ...options })
      return Number(headers.get('content-length'))
    } catch (error) {
      if (isMissing(error)) return undefined
      throw error
    }
  }

  /** A URL by which anybody may write this file once or more, until it expires. */
  async uploadUrl(path: string, options: SignOptions = {}): Promise<SignedUrl> {
    return await this.#sign('upload-url', path, options)
  }

  /** A URL by which anybody may read this file, until it expires. */
  async downloadUrl(path: string, options: SignOptions = {}): Promise<SignedUrl> {
    return await this.#sign('download-url', path, options)
  }

  async #sign(what: string, path: string, { expiresInSeconds, maxBytes, ...options }: SignOptions): Promise<SignedUrl> {
    const json = { path, expiresIn: expiresInSeconds, maxBytes }
    return await this.#client.json('POST', `${this.#path}/${what}`, { json, repeat: 'always', ...options })
  }
}

/** An answer to HEAD has no body, and so no code. */
function isMissing(error: unknown): boolean {
  return error instanceof NotFoundError || (error as { status?: number }).status === 404
}
