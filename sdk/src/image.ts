import { prepare, type DockerfileSource, type PrepareOptions } from './build-context.ts'
import { clientOf, type Atoll, type ClientOptions, type Content, type RequestOptions } from './atoll.ts'
import { ConnectionError, makeError, UnexpectedAnswerError } from './errors.ts'
import { eventsOf } from './events.ts'
import type { ErrorCode } from './errors.ts'
import type { SignOptions } from './files.ts'
import type { ImageInfo, ImageManifest, PushedImageInfo, SignedUrl } from './types.ts'

/** Events of a build while it runs: its steps in words, and their output. */
export type BuildEvent =
  | { event: 'build_log'; step: number; type: string; message: string }
  | { event: 'build_output'; step: number; stream: 'stdout' | 'stderr'; data: string }

export interface NameOptions {
  /** Gives a name that is taken to the new image, once it is ready. Until then it means the old one, which goes on without a name. */
  replace?: boolean | undefined
}

export interface BuildOptions extends ClientOptions, NameOptions {
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
    const { client: given, onEvent, replace, ...request } = options
    const client = clientOf({ client: given })
    const headers = { Accept: 'text/event-stream' }
    const call = { ...request, headers, json: { name, image: manifest, replace } }
    return new Image(client, await buildEnd(await client.open('POST', '/api/snapshots', call), onEvent))
  }

  /**
   * The image of a Dockerfile of this machine and of the folder whose files it copies. A path is that of a folder with a `Dockerfile`, or of a
   * Dockerfile in its folder. Nothing is read before {@link DockerfileImage.build}.
   */
  static fromDockerfile(source: string | DockerfileSource): DockerfileImage {
    return new DockerfileImage(source)
  }

  /** Makes an image of an OCI or docker archive, plain or compressed. Give `requestTimeoutMs` the time that takes. */
  static async fromArchive(name: string, archive: Content, options: ClientOptions & NameOptions = {}): Promise<Image> {
    const { client: given, replace, ...request } = options
    const client = clientOf({ client: given })
    const call = { ...request, query: { replace: replace ? 1 : undefined }, body: archive }
    return new Image(client, await client.json('PUT', `${pathOf(name)}/archive`, call))
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
  static async begin(name: string, manifest: ImageManifest, options: ClientOptions & NameOptions = {}): Promise<Image> {
    const { client: given, replace, ...request } = options
    const client = clientOf({ client: given })
    const call = { ...request, query: { async: 1 }, json: { name, image: manifest, replace }, creates: true }
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
  async follow({ onEvent, ...request }: Omit<BuildOptions, 'client' | 'replace'> = {}): Promise<Image> {
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

  /**
   * Gives the image another name, such as `tools:3`, and returns the image of that name. Deleting one leaves the other. Throws `ConflictError` for a
   * name that is taken, without `replace`.
   */
  async tag(name: string, { replace, ...options }: RequestOptions & NameOptions = {}): Promise<Image> {
    const call = { ...options, json: { name, replace }, repeat: 'always' } as const
    return new Image(this.#client, await this.#client.json('POST', `${pathOf(this.info.id)}/tag`, call))
  }

  /**
   * The image as an OCI archive, which skopeo, podman and {@link Image.fromArchive} read. It is made before its first byte comes: give
   * `requestTimeoutMs` the time that takes.
   */
  async archive(options: RequestOptions = {}): Promise<ReadableStream<Uint8Array>> {
    const { body } = await this.#client.open('GET', `${pathOf(this.info.id)}/archive`, options)
    if (body === null) throw new UnexpectedAnswerError('the answer has no archive')
    return body
  }

  /**
   * Sends the image to a registry, `host/name:tag`, with the credentials of `client.registries`. Give `requestTimeoutMs` the time that takes.
   * Throws `InvalidRequestError` when the registry is not allowed or refuses it.
   */
  async push(reference: string, options: RequestOptions = {}): Promise<PushedImageInfo> {
    const call = { ...options, json: { reference } }
    return await this.#client.json('POST', `${pathOf(this.info.id)}/push`, call)
  }

  /** Deletes the image and ends its build. Sandboxes from it run on. */
  async delete(options: RequestOptions = {}): Promise<void> {
    await this.#client.json('DELETE', pathOf(this.info.id), options)
  }
}

type DockerfileField =
  | ('buildArgs' | 'target' | 'noCache' | 'builderMemoryMB' | 'runtimeMemoryMB')
  | ('memory' | 'startCommand' | 'readyCommand')

/** What a build of a Dockerfile takes beside the options of other builds: fields of a manifest. */
export type DockerfileOptions = Pick<PrepareOptions, 'secrets' | 'onProgress'> & {
  [Field in DockerfileField]?: ImageManifest[Field] | undefined
}

/**
 * An image that a Dockerfile of this machine describes.
 *
 * ```js
 * const image = await Image.fromDockerfile('.').build('tools', { buildArgs: { VERSION: '2' } })
 * ```
 */
export class DockerfileImage {
  readonly #source: string | DockerfileSource

  /** Use {@link Image.fromDockerfile}. */
  constructor(source: string | DockerfileSource) {
    this.#source = source
  }

  /** Sends the files that the server lacks, then builds as {@link Image.build} does. Throws `TypeError` in browsers. */
  async build(name: string, options: BuildOptions & DockerfileOptions = {}): Promise<Image> {
    const { manifest, rest } = await this.#prepared(options)
    return await Image.build(name, manifest, rest)
  }

  /** The same in the background: it returns when the files are sent. `follow` waits for the build. */
  async begin(name: string, options: ClientOptions & NameOptions & DockerfileOptions = {}): Promise<Image> {
    const { manifest, rest } = await this.#prepared(options)
    return await Image.begin(name, manifest, rest)
  }

  async #prepared(options: BuildOptions & DockerfileOptions) {
    const { secrets, onProgress, buildArgs, target, noCache, builderMemoryMB, runtimeMemoryMB, ...others } = options
    const { memory, startCommand, readyCommand, ...rest } = others
    const client = clientOf(options)
    const { signal, requestTimeoutMs } = options
    const image = { target, buildArgs }
    const said = await prepare(client, this.#source, { secrets, image, onProgress, signal, requestTimeoutMs })
    const asked = { buildArgs, target, noCache, builderMemoryMB, runtimeMemoryMB, memory, startCommand, readyCommand }
    return { manifest: { ...said, ...asked } as ImageManifest, rest: { ...rest, client } }
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
