import { clientOf, type Atoll, type ClientOptions, type Content, type RequestOptions } from './atoll.ts'
import { ConnectionError, makeError, UnexpectedAnswerError } from './errors.ts'
import { eventsOf } from './events.ts'
import type { ErrorCode } from './errors.ts'
import type { SignOptions } from './files.ts'
import type { ImageInfo, ImageManifest, SignedUrl } from './types.ts'

/** Events of a build while it runs: its steps in words, and their output. */
export type BuildEvent =
  | { event: 'build_log'; step: number; type: string; message: string }
  | { event: 'build_output'; step: number; stream: 'stdout' | 'stderr'; data: string }

export interface BuildOptions extends ClientOptions {
  /** Called with each event of the build. */
  onEvent?: ((event: BuildEvent) => void) | undefined
}

/**
 * A machine that is built once and started from any number of times.
 *
 * ```js
 * await Image.build('tools', { steps: [{ type: 'apt_install', args: { packages: ['jq'] } }] })
 * await using sandbox = await Sandbox.create({ snapshot: 'tools' })
 * ```
 */
export class Image {
  /** The image as it was last read. */
  readonly info: ImageInfo
  readonly #client: Atoll

  /** Use {@link Image.build} or {@link Image.get}. */
  constructor(client: Atoll, info: ImageInfo) {
    this.#client = client
    this.info = info
  }

  /**
   * Builds an image under a name and waits for it; the build ends when `signal` aborts. `requestTimeoutMs` bounds the wait for its first words alone.
   * Throws `BuildFailedError`, and `ConflictError` for a name that is taken.
   */
  static async build(name: string, manifest: ImageManifest, options: BuildOptions = {}): Promise<Image> {
    const { client: given, onEvent, ...request } = options
    const client = clientOf({ client: given })
    const headers = { Accept: 'text/event-stream' }
    const call = { ...request, headers, json: { name, image: manifest } }
    return new Image(client, await buildEnd(await client.open('POST', '/api/snapshots', call), onEvent))
  }

  /** Makes an image of an OCI or docker archive, plain or compressed. Give `requestTimeoutMs` the time that takes. */
  static async fromArchive(name: string, archive: Content, options: ClientOptions = {}): Promise<Image> {
    const { client: given, ...request } = options
    const client = clientOf({ client: given })
    return new Image(client, await client.json('PUT', `${pathOf(name)}/archive`, { ...request, body: archive }))
  }

  /** A URL by which anybody may make the image of this name of an archive (PUT), until it expires. */
  static async archiveUrl(name: string, options: ClientOptions & SignOptions = {}): Promise<SignedUrl> {
    const { client: given, expiresInSeconds, maxBytes, ...request } = options
    const json = { expiresIn: expiresInSeconds, maxBytes }
    return await clientOf({ client: given }).json('POST', `${pathOf(name)}/archive-url`, {
      json,
      repeat: 'always',
      ...request,
    })
  }

  /** Begins the build in the background. `follow` waits for it. */
  static async begin(name: string, manifest: ImageManifest, options: ClientOptions = {}): Promise<Image> {
    const { client: given, ...request } = options
    const client = clientOf({ client: given })
    const call = { ...request, query: { async: 1 }, json: { name, image: manifest }, creates: true }
    return new Image(client, await client.json('POST', '/api/snapshots', call))
  }

  /** Images with a name, newest first. */
  static async list({ client, ...request }: ClientOptions = {}): Promise<Image[]> {
    const own = clientOf({ client })
    return (await own.json<ImageInfo[]>('GET', '/api/snapshots', request)).map((info) => new Image(own, info))
  }

  /** Finds an image by name or id. Throws `NotFoundError`. */
  static async get(nameOrId: string, { client, ...request }: ClientOptions = {}): Promise<Image> {
    const own = clientOf({ client })
    return new Image(own, await own.json('GET', pathOf(nameOrId), request))
  }

  /** Waits for the end of a build and returns the image as it is then. Throws `BuildFailedError`. */
  async follow({ onEvent, ...request }: Omit<BuildOptions, 'client'> = {}): Promise<Image> {
    const response = await this.#client.open('GET', `${pathOf(this.info.id)}/events`, request)
    return new Image(this.#client, await buildEnd(response, onEvent))
  }

  /**
   * What its latest build has told and its steps have written, so far; of more than 10 MB the first and the last part. Kept for thirty days. Throws
   * `NotFoundError` when there is none.
   */
  async log(options: RequestOptions = {}): Promise<string> {
    const response = await this.#client.open('GET', `${pathOf(this.info.id)}/log`, {
      ...options,
      headers: { Accept: 'text/plain' },
    })
    return await response.text()
  }

  /** Deletes the image and ends its build. Sandboxes from it run on. */
  async delete(options: RequestOptions = {}): Promise<void> {
    await this.#client.json('DELETE', pathOf(this.info.id), options)
  }
}

function pathOf(nameOrId: string): string {
  return `/api/images/${encodeURIComponent(nameOrId)}`
}

/** What the events of a build end with. Throws what it failed with. */
export async function buildEnd<Result = ImageInfo>(
  response: Response,
  onEvent: BuildOptions['onEvent'],
): Promise<Result> {
  if (response.body === null) throw new UnexpectedAnswerError('the answer to a build has no events')
  for await (const { event, data } of eventsOf(response.body)) {
    const facts = JSON.parse(data) as Record<string, unknown>
    if (event === 'result') return facts as Result
    if (event === 'error') {
      const { error, code, ...details } = facts
      throw makeError(code as ErrorCode, String(error), { details })
    }
    if (event === 'build_log' || event === 'build_output') onEvent?.({ event, ...facts } as BuildEvent)
  }
  throw new ConnectionError('the connection ended before the build')
}
