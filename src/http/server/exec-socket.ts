import { ServiceError } from '../../errors.ts'
import type { Log } from '../../lib/log.ts'
import type { Attachment, AttachmentEvent } from '../../sandbox/index.ts'
import { asServiceError } from './errors.ts'
import { onceClosed } from './once-closed.ts'
import type { Call, WebSocketLike } from './route.ts'
import { socketCaps, type Streams } from './streams.ts'

/** Output stays in the sandbox while this much is unsent to a client. */
const unsentBytesMax = 1024 * 1024
/** Bounds unsent messages too: a million tiny ones cost more than their bytes. */
const unsentMessagesMax = 1024
/** A client that does not answer a ping within this time is gone; its attachment must not keep the sandbox awake. */
const pingMs = 30_000

/** Close codes of RFC 6455 § 7.4.1. */
const closed = { normally: 1000, goingAway: 1001, broken: 1011 }

const frame = { stdin: 0, stdout: 1, stderr: 2, exit: 3, replayed: 4 }

type Carry = (socket: WebSocketLike, attachment: Attachment, streams: Streams, log: Log) => void

/** Attaches to a process before the upgrade, so that an error is an ordinary HTTP answer. */
export async function attach(
  call: Call<{ id: string }, { offset?: string | undefined }>,
  processId: string,
  carryBy: Carry,
  kind: 'exec' | 'pty' = 'exec',
): Promise<(socket: WebSocketLike) => void> {
  const { orgId, params, query, deps, request, streams } = call
  const release = streams.open(kind, socketCaps(call, params.id))
  onceClosed(request.raw.socket, release)
  const offset = query.offset === undefined ? 0 : Number(query.offset)
  let attachment: Attachment
  try {
    attachment = await deps.sandboxes.exec.attach(orgId, params.id, processId, { offset, kind })
  } catch (error) {
    // The connection may serve another request.
    release()
    throw error
  }
  // The attachment ends with the connection, which may be closed already: waking the sandbox takes time.
  onceClosed(request.raw.socket, () => attachment.close())
  return (socket) => carryBy(socket, attachment, streams, deps.log)
}

/** Handles a plain request at an address that takes only WebSockets. */
export async function wantsUpgrade(): Promise<never> {
  throw new ServiceError('invalid_request', 'this address takes WebSockets: ask for an upgrade')
}

/** Speaks the frames that the reference describes (`exec.ts`). */
export function carryExec(socket: WebSocketLike, attachment: Attachment, streams: Streams, log: Log): void {
  let hasEnded = false
  carry(socket, attachment, streams, log, {
    kind: 'exec',
    encode(event) {
      if (event.type === 'output') return Buffer.concat([Buffer.of(frame[event.stream]), event.data])
      if (event.type === 'replayed') return offsetFrame(event.offset)
      return exitFrame(event.exitCode)
    },
    accept(message) {
      if (hasEnded || message[0] !== frame.stdin) return undefined
      hasEnded = message.length === 1
      return message.subarray(1)
    },
    take: (input) => (input.length === 0 ? attachment.end() : attachment.write(input)),
  })
}

/** Raw bytes both ways. The reason of the close has the exit status: `exit 0`. */
export function carryPty(socket: WebSocketLike, attachment: Attachment, streams: Streams, log: Log): void {
  carry(socket, attachment, streams, log, {
    kind: 'pty',
    reason: (exitCode) => `exit ${exitCode}`,
    encode: (event) => (event.type === 'output' ? event.data : undefined),
    accept: (message) => (message.length > 0 ? message : undefined),
    take: (input) => attachment.write(input),
  })
}

interface Framing extends SocketInput {
  kind: 'exec' | 'pty'
  encode(event: AttachmentEvent): Buffer | undefined
  /** Of the close when the process has ended. */
  reason?(exitCode: number): string
}

/** Connects a client with a process until either ends. Neither side is read faster than the other takes. */
function carry(socket: WebSocketLike, attachment: Attachment, streams: Streams, log: Log, framing: Framing): void {
  const leave = () => socket.close(closed.goingAway, 'the server is going away')
  streams.draining.addEventListener('abort', leave)
  if (streams.draining.aborted) leave()
  const stopPings = keepAlive(socket)
  socket.once('close', () => {
    stopPings()
    streams.draining.removeEventListener('abort', leave)
    attachment.close()
  })
  takeInput(socket, {
    accept: framing.accept,
    // A process that has ended takes no input; its exit frame tells the client.
    take: (input) => framing.take(input).catch((error: unknown) => log.debug({ err: error }, 'input was not taken')),
  })
  sendOutput(socket, attachment, framing).then(
    (exitCode) => {
      socket.close(closed.normally, exitCode === undefined ? undefined : framing.reason?.(exitCode))
    },
    (error: unknown) => {
      const { code, message } = asServiceError(error)
      if (code === 'internal_error') log.error({ err: error }, `an ${framing.kind} connection broke`)
      socket.close(closed.broken, message.slice(0, 100))
    },
  )
}

/** The exit status, if the process has ended. */
async function sendOutput(
  socket: WebSocketLike,
  attachment: Attachment,
  framing: Framing,
): Promise<number | undefined> {
  let unsentMessages = 0
  for await (const event of attachment) {
    if (socket.readyState !== socket.OPEN) return undefined
    const data = framing.encode(event)
    if (data !== undefined) {
      unsentMessages++
      const sent = new Promise<void>((resolve) => {
        socket.send(data, { binary: true }, () => {
          unsentMessages--
          resolve()
        })
      })
      if (socket.bufferedAmount > unsentBytesMax || unsentMessages > unsentMessagesMax) await sent
    }
    if (event.type === 'exit') return event.exitCode
  }
  return undefined
}

function keepAlive(socket: WebSocketLike): () => void {
  let isAlive = true
  socket.on('pong', () => {
    isAlive = true
  })
  const timer = setInterval(() => {
    // A paused socket receives no pong.
    if (!isAlive && !socket.isPaused) {
      socket.terminate()
      return
    }
    isAlive = false
    socket.ping()
  }, pingMs)
  return () => clearInterval(timer)
}

function offsetFrame(offset: number): Buffer {
  const bytes = Buffer.alloc(9)
  bytes.writeUInt8(frame.replayed)
  bytes.writeBigInt64BE(BigInt(offset), 1)
  return bytes
}

function exitFrame(exitCode: number): Buffer {
  const bytes = Buffer.alloc(5)
  bytes.writeUInt8(frame.exit)
  bytes.writeInt32BE(exitCode, 1)
  return bytes
}

/**
 * A client's socket is paused while this much input waits for the sandbox. The messages of one more read may come on top, which the
 * parser holds already.
 */
export const inputWeightMax = 1024 * 1024
/** Added to the bytes of each message, so that a million tiny ones count. */
export const messageOverheadBytes = 1024

export interface SocketInput {
  /** The part of a message that enters the sandbox; undefined to drop the message. */
  accept: (message: Buffer) => Buffer | undefined
  /** Writes it to the sandbox and resolves when the next may follow. A failure loses this message alone. */
  take: (input: Buffer) => Promise<void>
}

/** Writes the messages of a socket in order and pauses the socket while too much waits. */
export function takeInput(socket: WebSocketLike, { accept, take }: SocketInput): void {
  const waiting: Buffer[] = []
  let weight = 0
  let isTaking = false

  const takeAll = async (): Promise<void> => {
    isTaking = true
    for (let input = waiting.shift(); input !== undefined; input = waiting.shift()) {
      await take(input)
      weight -= weigh(input)
      if (weight <= inputWeightMax && socket.isPaused) socket.resume()
    }
    isTaking = false
  }

  socket.on('message', (message: Buffer) => {
    const input = accept(message)
    if (input === undefined) return
    waiting.push(input)
    weight += weigh(input)
    if (weight > inputWeightMax) socket.pause()
    if (!isTaking) void takeAll()
  })
  socket.once('close', () => {
    waiting.length = 0
  })
}

function weigh(input: Buffer): number {
  return input.length + messageOverheadBytes
}
