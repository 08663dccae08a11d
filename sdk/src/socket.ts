import { ConnectionError } from './errors.ts'

/** The used part of a WebSocket, which those of the browser and of `ws` have in common. */
export interface SocketLike {
  binaryType: string
  readonly readyState: number
  readonly bufferedAmount: number
  addEventListener(type: 'open' | 'error', listener: () => void): void
  addEventListener(type: 'message', listener: (event: { data: unknown }) => void): void
  addEventListener(type: 'close', listener: (event: SocketEnd) => void): void
  send(data: Uint8Array<ArrayBuffer>): void
  close(code?: number): void
  /** Stops and resumes reading; browsers cannot. */
  pause?(): void
  resume?(): void
}

/** Connects to an address that takes WebSockets. Throws an `AtollError`. */
export type Connect = (address: URL, credentials: Record<string, string>) => Promise<Messages>

/** Messages that were received and not read yet, beyond which the other side is held up where that is possible. */
const unreadBytesMax = 1024 * 1024
const drainPollMs = 10
/** RFC 6455 § 7.4.1. */
const closedNormally = 1000

export interface SocketEnd {
  code: number
  reason: string
}

/** The messages of one connection in their order, to be read once. */
export class Messages implements AsyncIterable<Uint8Array> {
  /** Settles when the connection has ended, whichever side ended it. */
  readonly ended: Promise<SocketEnd>
  readonly #socket: SocketLike
  readonly #unread: Uint8Array[] = []
  #unreadBytes = 0
  #end: SocketEnd | undefined
  #wake: () => void = () => undefined

  /** `binaryType`: one whose messages are an `ArrayBuffer` or a `Uint8Array`. */
  constructor(socket: SocketLike, binaryType = 'arraybuffer') {
    this.#socket = socket
    socket.binaryType = binaryType
    const { promise, resolve } = withResolvers<SocketEnd>()
    this.ended = promise
    socket.addEventListener('message', ({ data }) => {
      const message = bytesOf(data)
      this.#unread.push(message)
      this.#unreadBytes += message.length
      if (this.#unreadBytes > unreadBytesMax) socket.pause?.()
      this.#wake()
    })
    socket.addEventListener('close', ({ code, reason }) => {
      this.#end = { code, reason }
      resolve(this.#end)
      this.#wake()
    })
    // Its close follows.
    socket.addEventListener('error', () => undefined)
  }

  /** Resolves when the connection can take more. Throws once it has ended. */
  async send(data: Uint8Array): Promise<void> {
    if (this.#end !== undefined) throw new ConnectionError('the connection has ended')
    this.#socket.send(new Uint8Array(data))
    while (this.#end === undefined && this.#socket.bufferedAmount > unreadBytesMax) {
      await new Promise((resolve) => setTimeout(resolve, drainPollMs))
    }
  }

  get isOpen(): boolean {
    return this.#end === undefined
  }

  close(): void {
    this.#socket.close(closedNormally)
  }

  async *[Symbol.asyncIterator](): AsyncIterator<Uint8Array> {
    for (;;) {
      const message = this.#unread.shift()
      if (message !== undefined) {
        this.#unreadBytes -= message.length
        if (this.#unreadBytes <= unreadBytesMax) this.#socket.resume?.()
        yield message
      } else if (this.#end === undefined) {
        await new Promise<void>((resolve) => {
          this.#wake = resolve
        })
      } else {
        return
      }
    }
  }
}

/** `Promise.withResolvers`, which Node 20 lacks. */
export function withResolvers<Value>() {
  let resolve: (value: Value | PromiseLike<Value>) => void = () => undefined
  let reject: (reason: unknown) => void = () => undefined
  const promise = new Promise<Value>((onResolve, onReject) => {
    resolve = onResolve
    reject = onReject
  })
  return { promise, resolve, reject }
}

function bytesOf(data: unknown): Uint8Array {
  if (data instanceof ArrayBuffer) return new Uint8Array(data)
  if (typeof data === 'string') return new TextEncoder().encode(data)
  const { buffer, byteOffset, length } = data as Uint8Array
  // A short message that is kept would keep all that was read with it.
  return 2 * length < buffer.byteLength
    ? Uint8Array.from(data as Uint8Array)
    : new Uint8Array(buffer, byteOffset, length)
}
