import { request as httpRequest } from 'node:http'
import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import { linger } from '../lib/linger.ts'
import type { Log } from '../lib/log.ts'
import type { PreviewTarget } from '../sandbox/index.ts'
import { closeFrame, FrameBoundary } from './frame-boundary.ts'
import { answerHeaders } from './headers.ts'
import { refusalText } from './page.ts'
import type { Refusal } from './page.ts'
import { badAnswer, boundInterim, internalError, refusalFor } from './refusals.ts'

/** The server in the sandbox must agree to the upgrade within this time. */
const upgradeMs = 60_000
/** "Service restart": clients connect again (IANA's registry of RFC 6455 close codes). */
const restarting = 1012
/** A client that was told so, or refused, closes the connection itself, or it is closed then. */
const lingerMs = 2000

export interface Upgrade {
  request: IncomingMessage
  socket: Duplex
  head: Buffer
  target: PreviewTarget
  /** The address as the sandbox sees it. */
  path: string
  /** Names and values in turn. */
  headers: string[]
  previewHost: string
  dial: (target: PreviewTarget) => Promise<Duplex>
  log: Log
  onAnswer: (statusCode: number) => void
}

/** Carries a WebSocket: the handshake as it is, then bytes both ways until either side ends. */
export async function carryUpgrade(job: Upgrade): Promise<void> {
  const { request, socket, head, target, path, headers, previewHost, dial, log, onAnswer } = job
  const refuse = (refusal: Refusal) => {
    onAnswer(refusal.statusCode)
    refuseUpgrade(socket, refusal)
  }
  let connection: Duplex
  try {
    connection = await dial(target)
  } catch (error) {
    const refusal = refusalFor(error, target.port)
    if (refusal === undefined) log.error({ err: error, sandboxId: target.sandbox.id }, 'a preview socket failed')
    refuse(refusal ?? internalError)
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
    // Without an agent: a connection of its own, which nobody reuses.
    createConnection: () => connection,
    method: request.method,
    path,
    headers: [...headers, 'Connection', 'Upgrade', 'Upgrade', request.headers.upgrade ?? 'websocket'],
  })
  const timer = setTimeout(() => upstream.destroy(new Error('no answer to the upgrade')), upgradeMs)
  let isAnswered = false
  boundInterim(upstream)
  upstream.on('upgrade', (answer, stream, streamHead) => {
    isAnswered = true
    clearTimeout(timer)
    onAnswer(101)
    const own = ['Connection', 'Upgrade', 'Upgrade', answer.headers.upgrade ?? 'websocket']
    writeHead(socket, answer, [...answerHeaders(answer, previewHost), ...own])
    if (streamHead.length > 0) stream.unshift(streamHead)
    if (head.length > 0) stream.write(head)
    join(socket, stream)
    giveWay(socket, stream, isFreezing)
  })
  upstream.on('response', (answer) => {
    isAnswered = true
    clearTimeout(timer)
    onAnswer(answer.statusCode ?? 0)
    writeHead(socket, answer, [...answerHeaders(answer, previewHost), 'Connection', 'close'])
    answer.on('error', () => socket.destroy())
    // Whoever ends before the answer does wants no more of it, as with requests that are no upgrades.
    socket.once('end', () => socket.destroy())
    socket.resume()
    answer.pipe(socket)
    answer.once('end', () => linger(socket))
  })
  upstream.on('error', () => {
    clearTimeout(timer)
    if (isAnswered) socket.destroy()
    else refuse(badAnswer)
  })
  upstream.end()
}

export function refuseUpgrade(socket: Duplex, refusal: Refusal): void {
  if (socket.destroyed) return
  socket.end(refusalText(refusal))
  linger(socket, lingerMs)
}

/** `a` is the client's. */
function join(a: Duplex, b: Duplex): void {
  a.pipe(b)
  b.pipe(a)
  a.once('close', () => b.destroy())
  // What was written last still goes out.
  b.once('close', () => (a.writableEnded ? undefined : a.destroy()))
  // A WebSocket that has ended on one side is over (RFC 6455 § 7.1.1), whether the other one says so too or never does.
  a.once('end', () => linger(a))
  b.once('end', () => linger(a))
}

/** Before a freeze of the sandbox the client is told to connect again, as soon as no frame to it is half sent. */
function giveWay(socket: Duplex, stream: Duplex, isFreezing: boolean): void {
  const boundary = new FrameBoundary()
  let mustGo = isFreezing
  const leave = () => {
    stream.unpipe(socket)
    stream.destroy()
    socket.end(closeFrame(restarting))
    linger(socket, lingerMs)
  }
  stream.on('data', (chunk: Buffer) => {
    boundary.pass(chunk)
    if (mustGo && boundary.isBetween) leave()
  })
  stream.once('freeze', () => {
    mustGo = true
    if (boundary.isBetween) leave()
  })
  if (mustGo) leave()
}

/** The parser has let pass only what is legal in a head, so it is sent on as it came, byte for byte. */
function writeHead(socket: Duplex, answer: IncomingMessage, headers: string[]): void {
  let head = `HTTP/1.1 ${answer.statusCode ?? 502} ${answer.statusMessage ?? ''}\r\n`
  for (let index = 0; index < headers.length; index += 2) head += `${headers[index]}: ${headers[index + 1]}\r\n`
  socket.write(`${head}\r\n`, 'latin1')
}
