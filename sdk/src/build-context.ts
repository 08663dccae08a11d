import type { Atoll, RequestOptions } from './atoll.ts'
import type { ImageManifest } from './types.ts'

/** A Dockerfile and the folder whose files it copies. Paths are of this machine, relative ones to the current folder. */
export interface DockerfileSource {
  /** The folder that `COPY` and `ADD` read. Default: that of `dockerfile`, or the current one. */
  context?: string | undefined
  /** Default: `Dockerfile` in the context. */
  dockerfile?: string | undefined
  /** The Dockerfile itself, in place of a file. */
  text?: string | undefined
  /** Lines of a `.dockerignore`, in place of `Dockerfile.dockerignore` beside the Dockerfile or `.dockerignore` in the context. */
  ignore?: readonly string[] | undefined
}

/** How far the files of a context are. */
export type ContextProgress =
  /** Files are read, to learn what the server lacks. */
  | { phase: 'reading'; files: number; total: number }
  /** Bytes of the files that travel. */
  | { phase: 'sending'; bytes: number; total: number }
  /** The server has all of them. `leftOut`: sockets, which no image holds. */
  | { phase: 'sent'; files: number; sentFiles: number; sentBytes: number; leftOut: readonly string[] }

export interface PrepareOptions extends Pick<RequestOptions, 'signal' | 'requestTimeoutMs'> {
  /** Of `RUN --mount=type=secret`: contents by id. */
  secrets?: Readonly<Record<string, string | Uint8Array>> | undefined
  /** What the files are for: a fault in it is told before they are sent. */
  image?: { [Field in 'target' | 'buildArgs']?: ImageManifest[Field] | undefined } | undefined
  /** Called while the files of the context are read and sent. */
  onProgress?: ((progress: ContextProgress) => void) | undefined
}

/** Reads a Dockerfile, sends what the server lacks of its files, and returns what a manifest says of both. */
export type Prepare = (
  client: Atoll,
  source: string | DockerfileSource,
  options: PrepareOptions,
) => Promise<Pick<ImageManifest, 'dockerfile' | 'context' | 'secrets'>>

let current: Prepare | undefined

/** What the entry of the package has set. Throws `TypeError` in browsers. */
export const prepare: Prepare = async (client, source, options) => {
  if (current === undefined) throw new TypeError('a browser has no files for a Dockerfile')
  return await current(client, source, options)
}

/** Called by the entry for Node. */
export function prepareWith(implementation: Prepare): void {
  current = implementation
}
