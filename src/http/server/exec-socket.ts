import type { Socket } from 'node:net'
import { ServiceError } from '../../errors.ts'
import { BodyBudget } from '../../lib/body-budget.ts'
import type { Log } from '../../lib/log.ts'
import type { Attachment, AttachmentEvent, ExitEvent } from '../../sandbox/index.ts'
import { asServiceError } from './errors.ts'
import { assertLeastRate } from './least-rate.ts'
import { onceClosed } from './once-closed.ts'
import type { Call, WebSocketLike } from './route.ts'
import { socketCaps, type Streams } from './streams.ts'

/**
 * A client that answers none of `unansweredMax` pings is gone; its attachment must not keep the sandbox awake. A client that does not read
 * gets no ping before the unsent output. The guest drops its attachment, and the client has an hour to read what was sent, and the reason.
 */
const pings = { everyMs: 30_000, unansweredMax: 3, unreadMax: 120 }

/** Bytes of an unfinished message that are not charged. Most messages have less. */
const unfinishedFreeBytes = 64 * 1024
/** Least size of a client's frame beside its payload (RFC 6455 § 5.2). */
const frameHeadBytes = 6

/**
 * Bounds messages that have arrived in part, per organisation and in total: a message may have megabytes, and its client may take any time
 * to send the rest. The process has one budget.
 */
export const unfinishedMessages = new BodyBudget(256 * 1024 * 1024, {
  ownerBytesMax: 128 * 1024 * 1024,
  freeBytes: unfinishedFreeBytes,
})

/** Close codes of RFC 6455 § 7.4.1, and of IANA's registry. */
export const closed = { normally: 1000, goingAway: 1001, badData: 1003, broken: 1011, restarting: 1012, tryLater: 1013 }

const frame = { stdin: 0, stdout: 1, stderr: 2, exit: 3, replayed: 4 }

type Carry = (socket: WebSocketLike, attachment: Attachment, context: CarryContext) => void

export interface CarryContext {
  streams: Streams
  log: Log
}

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
  return (socket) => {
    boundMessages(request.raw.socket, socket, unfinishedMessages, orgId)
    carryBy(socket, attachment, { streams, log: deps.log })
  }
}

/** Handles a plain request at an address that takes only WebSockets. */
export async function wantsUpgrade(): Promise<never> {
  throw new ServiceError('invalid_request', 'this address takes WebSockets: ask for an upgrade')
}

/** Speaks the frames that the reference describes (`exec.ts`). */
export function carryExec(socket: WebSocketLike, attachment: Attachment, context: CarryContext): void {
  let hasEnded = false
  carry(socket, attachment, context, {
    kind: 'exec',
    encode(event) {
      if (event.type === 'output') {
        // Written in place. A copy would double the garbage, and its collection is the main cost of a flood.
        event.headed.writeUInt8(frame[event.stream])
        return event.headed
      }
      if (event.type === 'replayed') return offsetFrame(event.offset)
      return exitFrame(event)
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
export function carryPty(socket: WebSocketLike, attachment: Attachment, context: CarryContext): void {
  carry(socket, attachment, context, {
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
  /** The reason in the close frame after the end of the process. */
  reason?(exitCode: number): string
}

/** Connects a client with a process until either ends. Neither side is read faster than the other takes. */
function carry(socket: WebSocketLike, attachment: Attachment, { streams, log }: CarryContext, framing: Framing): void {
  const leave = () => {
    attachment.close({ comesBack: true })
    socket.close(closed.goingAway, 'the server is going away')
  }
  streams.draining.addEventListener('abort', leave)
  if (streams.draining.aborted) leave()
  const stopPings = pingWhileOpen(socket)
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

/**
 * Sends all output before it returns or throws. Returns the exit status; undefined if the process has not ended. The next event confirms the
 * one before to the guest, which may then drop it. So output stays in the sandbox until the kernel has taken what was sent: what a killed server
 * holds itself would be lost.
 */
async function sendOutput(
  socket: WebSocketLike,
  attachment: Attachment,
  framing: Framing,
): Promise<number | undefined> {
  let sent = Promise.resolve()
  try {
    for await (const event of attachment) {
      if (socket.readyState !== socket.OPEN) return undefined
      const data = framing.encode(event)
      if (data !== undefined) {
        sent = new Promise<void>((resolve) => socket.send(data, { binary: true }, () => resolve()))
        if (socket.bufferedAmount > 0) await sent
      }
      if (event.type === 'exit') return event.exitCode
    }
    return undefined
  } finally {
    // A close ends the connection after a while, whatever is unsent.
    await sent
  }
}

/** Returns what ends it. */
export function pingWhileOpen(socket: WebSocketLike): () => void {
  let unanswered = 0
  let unsentBytes = 0
  socket.on('pong', () => {
    unanswered = 0
  })
  const timer = setInterval(() => {
    // A client that takes output, however slowly, is alive.
    if (socket.bufferedAmount < unsentBytes) unanswered = 0
    const max = socket.bufferedAmount > 0 ? pings.unreadMax : pings.unansweredMax
    // A paused socket receives no pong.
    if (unanswered >= max && !socket.isPaused) {
      socket.terminate()
      return
    }
    unanswered += 1
    socket.ping()
    unsentBytes = socket.bufferedAmount
  }, pings.everyMs)
  return () => clearInterval(timer)
}

function offsetFrame(offset: number): Buffer {
  const bytes = Buffer.alloc(9)
  bytes.writeUInt8(frame.replayed)
  bytes.writeBigInt64BE(BigInt(offset), 1)
  return bytes
}

/** A sixth byte marks an end by the time limit. A client that does not know it reads only the exit status before it. */
function exitFrame({ exitCode, timedOut = false }: ExitEvent): Buffer {
  const bytes = Buffer.alloc(timedOut ? 6 : 5)
  bytes.writeUInt8(frame.exit)
  bytes.writeInt32BE(exitCode, 1)
  if (timedOut) bytes.writeUInt8(1, 5)
  return bytes
}

/** Ends a connection whose unfinished message exceeds the budget or arrives too slowly. `raw` is the connection of `socket`. */
export function boundMessages(raw: Socket, socket: WebSocketLike, budget: BodyBudget, owner: string): void {
  const share = budget.open(owner)
  let bytes = 0
  const refuse = (reason: string) => {
    release()
    socket.close(closed.tryLater, reason)
    // The socket does not read until the client has answered.
    setImmediate(() => socket.terminate())
  }
  const onData = (chunk: Buffer) => {
    bytes += chunk.length
    if (!share.take(chunk.length)) refuse('too much input of the organisation is on its way')
  }
  const finished = (left: number) => {
    bytes = left
    share[Symbol.dispose]()
    share.take(left)
  }
  const stop = assertLeastRate({
    bytes: () => raw.bytesRead,
    isAwaited: () => bytes > unfinishedFreeBytes && !socket.isPaused,
    end: () => refuse('the message comes too slowly'),
  })
  function release(): void {
    stop()
    raw.off('data', onData)
    share[Symbol.dispose]()
  }
  // Counts bytes before the parser has them: the end of a message then resets the count.
  raw.prependListener('data', onData)
  // The read may end with the beginning of the next message, which is not counted: it is short.
  socket.on('message', () => finished(0))
  // A pong may come inside a message, so what precedes it stays counted. It may also come for days without a message.
  socket.on('pong', (data: Buffer) => finished(Math.max(0, bytes - data.length - frameHeadBytes)))
  onceClosed(raw, release)
}

/**
 * A client's socket is paused while this much input waits for the sandbox. The messages of one more read, which the parser already holds,
 * may exceed it.
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
