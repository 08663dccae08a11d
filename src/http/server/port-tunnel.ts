import type { Duplex } from 'node:stream'
import type { FreezeReason } from '../../sandbox/index.ts'
import { boundMessages, closed, pingWhileOpen, unfinishedMessages } from './exec-socket.ts'
import { onceClosed } from './once-closed.ts'
import type { Call, WebSocketLike } from './route.ts'
import { tunnelCaps } from './streams.ts'

/** A connection to the sandbox is not read while this much waits for the client. */
const unsentBytesMax = 256 * 1024
/** How long the rest of what a client sent before it left may take to enter the sandbox. */
const flushMs = 10_000
/** The text message that ends one direction, from either side. */
const endMessage = '{"type":"end"}'
const textBytesMax = 64

/** Connects to the port before the upgrade, so that an error is an ordinary HTTP answer. */
export async function openTunnel(call: Call<{ id: string }>, port: number): Promise<(socket: WebSocketLike) => void> {
  const { orgId, params, deps, request, streams } = call
  const raw = request.raw.socket
  const close = streams.open('tunnel', tunnelCaps(call, params.id))
  let release = () => {}
  let stream: Duplex
  const gone = new AbortController()
  onceClosed(raw, () => gone.abort())
  try {
    const use = await deps.sandboxes.previews.use(orgId, params.id, port)
    release = use.release
    stream = await deps.sandboxes.previews.dial(use.target, gone.signal)
  } catch (error) {
    // The connection may serve another request.
    close()
    release()
    throw error
  }
  onceClosed(stream, () => {
    close()
    release()
  })
  stream.on('error', () => stream.destroy())
  let isCarried = false
  onceClosed(raw, () => {
    if (!isCarried) stream.destroy()
  })
  return (socket) => {
    isCarried = true
    boundMessages(raw, socket, unfinishedMessages, orgId)
    carryTunnel(socket, stream, streams.draining)
  }
}

/** Bytes both ways, each way no faster than its reader takes them and with an end of its own. */
export function carryTunnel(socket: WebSocketLike, stream: Duplex, draining: AbortSignal): void {
  // Otherwise the end of one direction ends the other.
  stream.allowHalfOpen = true
  const leave = (code: number, reason: string) => {
    socket.close(code, reason)
    stream.destroy()
  }
  const drain = () => leave(closed.goingAway, 'the server is going away')
  draining.addEventListener('abort', drain)
  const stopPings = pingWhileOpen(socket)

  stream.on('data', (bytes: Buffer) => {
    socket.send(bytes, { binary: true }, () => {
      if (socket.bufferedAmount <= unsentBytesMax) stream.resume()
    })
    if (socket.bufferedAmount > unsentBytesMax) stream.pause()
  })
  stream.once('end', () => socket.send(endMessage))
  stream.once('error', () => leave(closed.broken, 'the connection in the sandbox broke'))
  stream.once('freeze', (reason: FreezeReason) =>
    leave(closed.restarting, `the memory of the sandbox is saved: ${reason}`),
  )
  stream.once('close', () => socket.close(closed.normally))
  stream.on('drain', () => socket.resume())

  socket.on('message', (message: Buffer, isBinary: boolean) => {
    if (!isBinary) {
      if (isEnd(message)) stream.end()
      else leave(closed.badData, `a text message must be ${endMessage}`)
    } else if (stream.writable && !stream.write(message)) {
      socket.pause()
    }
  })
  socket.once('close', () => {
    stopPings()
    draining.removeEventListener('abort', drain)
    flush(stream)
  })
  if (draining.aborted) drain()
  if (stream.destroyed) socket.close(closed.normally)
}

function isEnd(message: Buffer): boolean {
  if (message.length > textBytesMax) return false
  try {
    return (JSON.parse(message.toString()) as { type?: unknown } | null)?.type === 'end'
  } catch {
    return false
  }
}

/** Lets what the client has sent enter the sandbox, and ends the connection. */
function flush(stream: Duplex): void {
  if (stream.destroyed) return
  const timer = setTimeout(() => stream.destroy(), flushMs)
  stream.once('close', () => clearTimeout(timer))
  // Nobody reads what still comes.
  stream.removeAllListeners('data')
  stream.resume()
  stream.end(() => stream.destroy())
}
