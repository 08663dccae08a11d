import { request as httpRequest, type IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import { limitInterimAnswers, type Forward } from './proxy.ts'
import { statusOf } from '../lib/error-status.ts'
import { linger } from '../lib/linger.ts'
import { badAnswer, errorFor, errorText, internalError, type PreviewError } from './errors.ts'
import type { Dial } from './pool.ts'

/** The server in the sandbox must answer the upgrade within this time. */
const upgradeMs = 60_000
/** "Service restart": clients connect again (IANA's registry of RFC 6455 close codes). */
const restarting = 1012
/** After a close frame or an error the client closes the connection; otherwise the server does after this time. */
const lingerMs = 2000

export interface Upgrade extends Omit<Forward, 'response' | 'agent' | 'refuse'> {
  socket: Duplex
  head: Buffer
  dial: Dial
  onAnswer: (statusCode: number) => void
}

/** Forwards a WebSocket: the handshake unchanged, then bytes both ways until a side ends. */
export async function carryUpgrade(job: Upgrade): Promise<void> {
  const { request, socket, head, target, path, headers, headersBack, dial, log, onAnswer } = job
  const sendError = (error: PreviewError) => {
    onAnswer(statusOf[error.code])
    sendUpgradeError(socket, error)
  }
  let connection: Duplex
  try {
    connection = await dial(target)
  } catch (error) {
    const known = errorFor(error, target.port)
    if (known === undefined) log.error({ err: error, sandboxId: target.sandbox.id }, 'a preview socket failed')
    sendError(known ?? internalError)
    return
  }
  connection.on('error', () => connection.destroy())
  let isFreezing = false
  connection.once('freeze', () => {
    isFreezing = true
  })
  socket.once('close', () => connection.destroy())
  if (socket.destroyed) {
    connection.destroy()
    return
  }
  const upstream = httpRequest({
    // No agent: a WebSocket's connection is not reused.
    createConnection: () => connection,
    method: request.method,
    path,
    headers: [...headers, 'Connection', 'Upgrade', 'Upgrade', request.headers.upgrade ?? 'websocket'],
  })
  const timer = setTimeout(() => upstream.destroy(new Error('no answer to the upgrade')), upgradeMs)
  let isAnswered = false
  limitInterimAnswers(upstream)
  upstream.on('upgrade', (answer, stream, streamHead) => {
    isAnswered = true
    clearTimeout(timer)
    onAnswer(101)
    const own = ['Connection', 'Upgrade', 'Upgrade', answer.headers.upgrade ?? 'websocket']
    writeHead(socket, answer, [...headersBack(answer), ...own])
    if (streamHead.length > 0) stream.unshift(streamHead)
    if (head.length > 0) stream.write(head)
    join(socket, stream)
    closeBeforeFreeze(socket, stream, isFreezing)
  })
  upstream.on('response', (answer) => {
    isAnswered = true
    clearTimeout(timer)
    onAnswer(answer.statusCode ?? 0)
    writeHead(socket, answer, [...headersBack(answer), 'Connection', 'close'])
    answer.on('error', () => socket.destroy())
    // A client that ends its side early wants no answer, as with plain requests.
    socket.once('end', () => socket.destroy())
    socket.resume()
    answer.pipe(socket)
    answer.once('end', () => linger(socket))
  })
  upstream.on('error', () => {
    clearTimeout(timer)
    if (isAnswered) socket.destroy()
    else sendError(badAnswer)
  })
  upstream.end()
}

export function sendUpgradeError(socket: Duplex, error: PreviewError): void {
  if (socket.destroyed) return
  socket.end(errorText(error))
  linger(socket, lingerMs)
}

/** `a` is the client's side. */
function join(a: Duplex, b: Duplex): void {
  a.pipe(b)
  b.pipe(a)
  a.once('close', () => b.destroy())
  // Bytes already written still reach the client.
  b.once('close', () => (a.writableEnded ? undefined : a.destroy()))
  // A WebSocket is over when one side has ended (RFC 6455 § 7.1.1), whether or not the other side ends too.
  a.once('end', () => linger(a))
  b.once('end', () => linger(a))
}

/** Before a freeze of the sandbox: sends the client a close frame (reconnect) as soon as no frame is half sent. */
function closeBeforeFreeze(socket: Duplex, stream: Duplex, isFreezing: boolean): void {
  const boundary = new FrameBoundary()
  let mustClose = isFreezing
  const close = () => {
    stream.unpipe(socket)
    stream.destroy()
    socket.end(closeFrame(restarting))
    linger(socket, lingerMs)
  }
  stream.on('data', (chunk: Buffer) => {
    boundary.read(chunk)
    if (mustClose && boundary.isBetween) close()
  })
  stream.once('freeze', () => {
    mustClose = true
    if (boundary.isBetween) close()
  })
  if (mustClose) close()
}

/** The parser accepted only legal characters, so the head is forwarded byte for byte. */
function writeHead(socket: Duplex, answer: IncomingMessage, headers: string[]): void {
  let head = `HTTP/1.1 ${answer.statusCode ?? 502} ${answer.statusMessage ?? ''}\r\n`
  for (let index = 0; index < headers.length; index += 2) head += `${headers[index]}: ${headers[index + 1]}\r\n`
  socket.write(`${head}\r\n`, 'latin1')
}

/** The longest head of a WebSocket frame: two bytes, eight of length, four of mask (RFC 6455 § 5.2). */
const headBytesMax = 14

/** Tracks the frames of one direction of a WebSocket, to find where a frame of our own fits between two. */
export class FrameBoundary {
  readonly #head = Buffer.alloc(headBytesMax)
  #headBytes = 0
  #payloadBytes = 0n

  /** Whether the bytes read so far end with a whole frame. */
  get isBetween(): boolean {
    return this.#headBytes === 0 && this.#payloadBytes === 0n
  }

  read(chunk: Buffer): void {
    let at = 0
    while (at < chunk.length) {
      if (this.#payloadBytes > 0n) {
        const left = BigInt(chunk.length - at)
        const step = left < this.#payloadBytes ? left : this.#payloadBytes
        this.#payloadBytes -= step
        at += Number(step)
        continue
      }
      this.#head[this.#headBytes++] = chunk[at++] ?? 0
      if (this.#headBytes < 2 || this.#headBytes < headBytes(this.#head)) continue
      this.#payloadBytes = payloadBytes(this.#head)
      this.#headBytes = 0
    }
  }
}

function headBytes(head: Buffer): number {
  const second = head.readUInt8(1)
  const length = second & 0x7f
  return 2 + (length === 126 ? 2 : length === 127 ? 8 : 0) + ((second & 0x80) === 0 ? 0 : 4)
}

function payloadBytes(head: Buffer): bigint {
  const length = head.readUInt8(1) & 0x7f
  if (length === 126) return BigInt(head.readUInt16BE(2))
  return length === 127 ? head.readBigUInt64BE(2) : BigInt(length)
}

/** An unmasked close frame with a code and no reason. */
export function closeFrame(code: number): Buffer {
  return Buffer.from([0x88, 2, code >> 8, code & 0xff])
}
