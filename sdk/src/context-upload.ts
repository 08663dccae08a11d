import { Readable, pipeline, type Duplex } from 'node:stream'
import zlib from 'node:zlib'
import { inPieces, tarEnd, tarHeader, tarPadding } from '../../src/protocol/tar-writer.ts'
import type { components } from './api.ts'
import type { Atoll } from './atoll.ts'
import type { PrepareOptions } from './build-context.ts'
import {
  bytesOf,
  openFile,
  pieceBytes,
  shownPath,
  stampOf,
  type ContextEntry,
  type ContextFile,
  type ContextFiles,
} from './context-files.ts'
import { AtollError, InvalidRequestError, RequestTimeoutError, UnexpectedAnswerError } from './errors.ts'
import { pause, pauseMs } from './retry.ts'

const timeoutMsMax = 2 ** 31 - 1
const contextsPath = '/api/images/contexts'

/** A file is no longer what it was when it was read. */
export class ChangedFileError extends AtollError {}

type Schemas = components['schemas']
type ContextState = Pick<Schemas['BuildContext'], 'id' | 'missing'>

export interface SentContext {
  id: string
  sentFiles: number
  sentBytes: number
}

/**
 * Tells the server what a folder holds and sends the contents that it lacks, each once. After a break it asks again what is missing, and gives up
 * when as many attempts as the client has retries brought nothing. Throws {@link ChangedFileError}.
 */
export async function sendContext(
  client: Atoll,
  root: string,
  { entries }: ContextFiles,
  options: PrepareOptions,
): Promise<SentContext> {
  const { signal, requestTimeoutMs, image } = options
  // Made anew for each request, so that a long upload does not keep it.
  const ask = async () => {
    const call = { json: { files: entries.map(toldOf), image }, repeat: 'always', signal, requestTimeoutMs } as const
    return await client.json<ContextState>('POST', contextsPath, call)
  }
  const sent = { sentFiles: 0, sentBytes: 0 }
  let state = await ask()
  for (let failures = 0, before = Infinity; state.missing.length > 0;) {
    const { id, missing } = state
    failures = missing.length < before ? 0 : failures + 1
    if (failures > client.retries) throw new UnexpectedAnswerError(`${client.url} does not keep what it is sent`)
    before = missing.length
    try {
      const files = filesOf(entries, missing)
      sent.sentFiles += files.length
      state = await upload(client, `${contextsPath}/${id}/archive`, { root, files, options, sent })
    } catch (error) {
      signal?.throwIfAborted()
      const waitMs = error instanceof AtollError ? pauseMs(error, 'always', failures + 1) : undefined
      if (waitMs === undefined || failures >= client.retries) throw error
      await pause(waitMs, signal)
      state = await ask()
    }
  }
  return { id: state.id, ...sent }
}

/** An entry as the server is told of it. */
function toldOf(entry: ContextEntry): Schemas['ContextFile'] {
  const common = {
    ...textOrBytes('path', entry.path),
    type: entry.type,
    mode: entry.mode,
    mtime: entry.modifiedSeconds,
  }
  if (entry.type === 'file') return { ...common, digest: entry.digest, size: entry.size }
  return entry.type === 'symlink' ? { ...common, ...textOrBytes('target', entry.target) } : common
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

function textOrBytes(field: string, latin1: string): Record<string, string> {
  const bytes = Buffer.from(latin1, 'latin1')
  try {
    return { [field]: utf8.decode(bytes) }
  } catch {
    return { [`${field}Base64`]: bytes.toString('base64') }
  }
}

/** One file for each digest. */
function filesOf(entries: readonly ContextEntry[], digests: readonly string[]): ContextFile[] {
  const missing = new Set(digests)
  return entries.filter((entry) => entry.type === 'file').filter(({ digest }) => missing.delete(digest))
}

interface Upload {
  root: string
  files: readonly ContextFile[]
  options: PrepareOptions
  sent: { sentBytes: number }
}

async function upload(client: Atoll, path: string, { root, files, options, sent }: Upload): Promise<ContextState> {
  const { signal, requestTimeoutMs = client.requestTimeoutMs, onProgress } = options
  const total = files.reduce((bytes, { size }) => bytes + size, 0)
  const stalled = new AbortController()
  const stall = () => stalled.abort(new RequestTimeoutError(`PUT ${path} took nothing within ${requestTimeoutMs} ms`))
  const timer = setTimeout(stall, requestTimeoutMs)
  let bytes = 0
  let fault: unknown
  const archive = async function* () {
    try {
      for (const file of files) {
        yield tarHeader({ ...file, name: file.path })
        for await (const piece of contentOf(root, file)) {
          yield piece
          bytes += piece.length
          onProgress?.({ phase: 'sending', bytes, total })
        }
        yield tarPadding(file.size)
      }
      yield tarEnd
    } catch (error) {
      fault = error
      throw error
    }
  }
  onProgress?.({ phase: 'sending', bytes, total })
  try {
    return await client.json<ContextState>('PUT', path, {
      body: bodyOf(compressed(archive(), client), () => timer.refresh()),
      // The time that the server takes nothing is bounded, not that of all together.
      requestTimeoutMs: timeoutMsMax,
      signal: signal === undefined ? stalled.signal : AbortSignal.any([signal, stalled.signal]),
    })
  } catch (error) {
    signal?.throwIfAborted()
    // The request fails with the file that it sends, and tells it less well.
    if (fault !== undefined) throw fault
    if (error instanceof InvalidRequestError && typeof error.details['path'] === 'string')
      throw new ChangedFileError(error.message, { cause: error })
    throw error
  } finally {
    clearTimeout(timer)
    sent.sentBytes += bytes
  }
}

/** As many bytes as the header says. Throws {@link ChangedFileError} for a file that is no longer what was read. */
async function* contentOf(root: string, { path, size, stamp }: ContextFile): AsyncGenerator<Uint8Array> {
  const changed = (cause?: unknown) => new ChangedFileError(`${shownPath(path)} changed while it was sent`, { cause })
  const file = await openFile(bytesOf(root, path)).catch((error: unknown) => {
    throw changed(error)
  })
  const isSame = async () => stampOf(await file.stat({ bigint: true })) === stamp
  try {
    if (!(await isSame())) throw changed()
    for (let left = size; left > 0;) {
      const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(Math.min(left, pieceBytes)))
      if (bytesRead === 0) throw changed()
      left -= bytesRead
      yield buffer.subarray(0, bytesRead)
    }
    if (!(await isSame())) throw changed()
  } finally {
    await file.close()
  }
}

/**
 * Compressed on the way to another machine, with zstd 1 at some 200 MB/s of sources and 470 MB/s of what has no smaller form. To this one it would take
 * longer.
 */
function compressed(archive: AsyncIterable<Uint8Array>, { url }: Atoll): AsyncIterable<Uint8Array> {
  if (isOnThisMachine(url)) return archive
  // Node before 22.15 has no zstd.
  const { createZstdCompress } = zlib as Partial<Pick<typeof zlib, 'createZstdCompress'>>
  const zstd = createZstdCompress?.({ params: { [zlib.constants.ZSTD_c_compressionLevel]: 1 } })
  const zip: Duplex = zstd ?? zlib.createGzip({ level: 1 })
  // The reader of `zip` meets its errors.
  pipeline(Readable.from(archive, { objectMode: false }), zip, () => undefined)
  return zip
}

function isOnThisMachine(url: string): boolean {
  return /^(127\.|localhost$|\[::1\]$)/.test(new URL(url).hostname)
}

/** A body in pieces of a size that is worth a step, whatever the sizes of the files are. */
function bodyOf(archive: AsyncIterable<Uint8Array>, onPiece: () => void): ReadableStream<Uint8Array> {
  const pieces = inPieces(archive, pieceBytes)
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await pieces.next()
      onPiece()
      if (done) controller.close()
      else controller.enqueue(value)
    },
    async cancel() {
      await pieces.return(undefined)
    },
  })
}
