import type { FastifyRequest } from 'fastify'
import mime from 'mime'
import { once } from 'node:events'
import type { IncomingMessage } from 'node:http'
import { type Readable, Transform } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { ServiceError } from '../../errors.ts'
import { defined } from '../../lib/defined.ts'
import { assertLeastRate, passedOn } from './least-rate.ts'
import type { Answer, Call } from './route.ts'
import { fileCaps } from './streams.ts'

/** An upload or download without progress for this long is cut off. */
const stalledMs = 5 * 60_000
const unknownType = 'application/octet-stream'

type FileCall = Pick<Call<{ id: string }>, 'params' | 'request' | 'reply' | 'deps' | 'limits' | 'streams'>

interface FileInSandbox {
  /** Owner of the sandbox: of the key, or of the signature. */
  orgId: string
  path: string
  user?: string
}

interface SentFile extends FileInSandbox {
  /** Makes browsers save the file instead of showing it. */
  isAttachment?: boolean
}

/**
 * Answers with a file, or the part that `Range` asks for, as a stream. Errors come before the first byte; a file that
 * shrinks while it is sent breaks the connection, since its `Content-Length` is out already.
 */
export async function sendFile(call: FileCall, file: SentFile): Promise<Answer | undefined> {
  const { request, deps } = call
  const sandboxId = call.params.id
  const { files } = deps.sandboxes
  const { orgId, path, user } = file
  const as = defined({ user })
  const header = request.headers.range
  const isHead = request.method === 'HEAD'
  if (isHead) {
    const { isDir, size, modifiedAt } = await files.stat(orgId, sandboxId, path, as)
    if (isDir) throw new ServiceError('invalid_request', 'path: is a directory', { details: { field: 'path' } })
    return { statusCode: 200, headers: { ...fileHeaders(file, modifiedAt), 'content-length': String(size) } }
  }
  // A range needs the size first; most requests have no range.
  const before = header === undefined ? undefined : await files.stat(orgId, sandboxId, path, as)
  const range =
    before === undefined || before.isDir ? undefined : parseRange(rangeHeader(request, before.modifiedAt), before.size)
  if (range === 'unsatisfiable') {
    const headers = { 'content-range': `bytes */${before?.size ?? 0}`, 'accept-ranges': 'bytes' }
    const body = { error: 'the file is shorter than the range', code: 'invalid_request' }
    return { statusCode: 416, headers, body }
  }
  const release = call.streams.open('file', fileCaps(call.limits, orgId))
  try {
    const { stat, body } = await files.read(orgId, sandboxId, path, { ...range, ...as })
    const bytes = range === undefined ? stat.size : range.end - range.start + 1
    const part = range && { 'content-range': `bytes ${range.start}-${range.end}/${before?.size ?? 0}` }
    const headers = { ...fileHeaders(file, stat.modifiedAt), 'content-length': String(bytes), ...part }
    await sendBody(call, body, { statusCode: range === undefined ? 200 : 206, headers, bytes })
  } finally {
    release()
  }
  return undefined
}

interface Head {
  statusCode: number
  headers: Record<string, string>
  bytes: number
}

async function sendBody({ reply }: FileCall, body: Readable, { statusCode, headers, bytes }: Head): Promise<void> {
  // A hibernation that comes before the first byte is an answer, not a broken connection. Throws the error of the body.
  await once(body, 'readable')
  reply.hijack()
  const response = reply.raw
  response.setTimeout(stalledMs, () => response.destroy())
  response.writeHead(statusCode, { ...(reply.getHeaders() as Record<string, string>), ...headers })
  const stop = assertLeastRate({ ...passedOn(response), end: () => response.destroy() })
  try {
    await pipeline(body, exactly(bytes), response)
  } catch {
    // The client left or the file shrank. `pipeline` destroyed all three streams; headers are sent, so there is no other answer.
  } finally {
    stop()
    body.destroy()
    response.setTimeout(0)
  }
}

/** With `If-Range`, a part is sent only if the client has this version of the file. */
function rangeHeader(request: FastifyRequest, modifiedAt: string): string | undefined {
  const condition = request.headers['if-range']
  return condition === undefined || condition === lastModified(modifiedAt)?.['last-modified']
    ? request.headers.range
    : undefined
}

/** Files are hostile: browsers must neither guess their type nor run them with the rights of this origin. */
function fileHeaders({ path, isAttachment }: SentFile, modifiedAt: string): Record<string, string> {
  const name = path.slice(path.lastIndexOf('/') + 1)
  return {
    'content-type': contentType(name),
    'accept-ranges': 'bytes',
    ...lastModified(modifiedAt),
    'x-content-type-options': 'nosniff',
    'content-security-policy': 'sandbox',
    ...(isAttachment ? { 'content-disposition': attachment(name) } : {}),
  }
}

function lastModified(modifiedAt: string): { 'last-modified': string } | undefined {
  const date = new Date(modifiedAt)
  return Number.isNaN(date.getTime()) ? undefined : { 'last-modified': date.toUTCString() }
}

export function contentType(name: string): string {
  const type = mime.getType(name) ?? unknownType
  return type.startsWith('text/') || type === 'application/json' ? `${type}; charset=utf-8` : type
}

/** RFC 6266: an ASCII name for every client, and the real name percent-encoded (RFC 8187). */
export function attachment(name: string): string {
  const plain = name.replaceAll(/[^\w.\- ]/g, '_') || 'file'
  const encoded = encodeURIComponent(name.toWellFormed()).replaceAll(/['()*!]/g, (character) => {
    return `%${character.charCodeAt(0).toString(16).toUpperCase()}`
  })
  return `attachment; filename="${plain}"; filename*=UTF-8''${encoded}`
}

/** Forwards exactly `bytes`: drops the excess of a growing file, fails on a short one. */
function exactly(bytes: number): Transform {
  let left = bytes
  return new Transform({
    transform(chunk: Buffer, _encoding, callback) {
      const part = chunk.length > left ? chunk.subarray(0, left) : chunk
      left -= part.length
      callback(null, part)
    },
    flush(callback) {
      callback(left > 0 ? new Error(`the file ended ${left} bytes early`) : null)
    },
  })
}

/** Streams the request's body into a file, as fast as the sandbox takes it. */
export async function receiveFile(
  { params, request: { raw: request }, deps, limits, streams }: FileCall,
  { orgId, path, user, bytesMax: signedMax = Infinity }: FileInSandbox & { bytesMax?: number },
): Promise<void> {
  const bytesMax = Math.min(signedMax, limits.uploadBytesMax)
  if (Number(request.headers['content-length'] ?? 0) > bytesMax) {
    throw new ServiceError('too_large', `the file is larger than ${bytesMax} bytes`)
  }
  const write = () => deps.sandboxes.files.write(orgId, params.id, path, request, defined({ bytesMax, user }))
  await receiving(request, { limits, streams, orgId }, write)
}

interface Receiving extends Pick<FileCall, 'limits' | 'streams'> {
  orgId: string
}

/** Counts an upload until `work` has read it, and cuts it off when its client is too slow. */
export async function receiving<Result>(
  request: IncomingMessage,
  { limits, streams, orgId }: Receiving,
  work: () => Promise<Result>,
): Promise<Result> {
  const release = streams.open('file', fileCaps(limits, orgId))
  request.setTimeout(stalledMs, () => request.destroy(new Error('the upload stalled')))
  const { socket } = request
  const stop = assertLeastRate({
    bytes: () => socket.bytesRead,
    isAwaited: () => request.readableLength === 0 && !request.readableEnded,
    end: () => request.destroy(new Error('the upload is too slow')),
  })
  try {
    return await work()
  } finally {
    stop()
    release()
    request.setTimeout(0)
  }
}

/** A part of a file, both ends inclusive. */
export interface ByteRange {
  start: number
  end: number
}

/** Fits two numbers and blanks; a longer header is malformed. */
const headerLengthMax = 100
const numberPattern = /^\d{0,15}$/

/**
 * Reads a `Range` header (RFC 9110 § 14.2) against the size of a file. `undefined`: send it whole, which is right for no
 * header, for another unit, for several ranges and for what is malformed. `unsatisfiable`: answer 416.
 */
export function parseRange(header: string | undefined, size: number): ByteRange | 'unsatisfiable' | undefined {
  if (header === undefined || header.length > headerLengthMax) return undefined
  // Blanks are trimmed, not matched: a pattern in which two parts match the same blanks backtracks.
  const [, first = '', last = ''] = /^bytes=([^-]*)-([^-]*)$/i.exec(header)?.map((part) => part.trim()) ?? []
  if (first === '' && last === '') return undefined
  if (!numberPattern.test(first) || !numberPattern.test(last)) return undefined
  if (first === '') {
    const length = Math.min(Number(last), size)
    return length === 0 ? 'unsatisfiable' : { start: size - length, end: size - 1 }
  }
  const start = Number(first)
  if (last !== '' && Number(last) < start) return undefined
  if (start >= size) return 'unsatisfiable'
  return { start, end: last === '' ? size - 1 : Math.min(Number(last), size - 1) }
}
