import type { Duplex } from 'node:stream'
import type { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import { type JsonBounds, JsonBoundError, parseJson } from '../../lib/json-values.ts'
import { firstFault } from '../../lib/first-fault.ts'
import { FairYield } from '../../lib/async/fair-yield.ts'
import type { FreezeReason } from '../../sandbox/ports/runtime-driver.ts'
import { frameHeaderBytes, guestFaultSchema, lineBytesMax, payloadBytesMax } from '../../protocol/guest.ts'

/** Bounds of an answer: the longest is a list of ports. */
const answerBounds: JsonBounds = { valuesMax: 20_000, depthMax: 16, fieldsMax: 1000 }
/** An answer up to this size is parsed without yielding, whatever is in it. */
const shortBytes = 8 * 1024
/** A chunk up to this size is joined with one behind it that is no smaller. */
const joinedBytesMax = 4096
/** Frames that are read without yielding: tiny ones cost far more than their bytes. */
const framesPerYield = 64

/**
 * One thread reads the answers of all guests, and guests are hostile. A long read yields here between two pieces. Each iteration of the
 * event loop lets one reader go on, so guests that flood slow down each other and not the server.
 */
export const guestYield = new FairYield(1)

export interface Frame {
  kind: number
  payload: Buffer
}

/** Timeout of one wait for a whole answer line or frame, even if it arrives byte by byte, and a signal that ends the wait early. */
export interface WaitOptions {
  /** Absent: as long as the connection lives. */
  timeoutMs?: number | undefined
  signal?: AbortSignal | undefined
}

/** Opens a connection for a request that may be repeated after a freeze. */
export type Reopen = <T>(use: (connection: GuestConnection) => Promise<T>) => Promise<T>

export interface Timeouts {
  /** Timeout of the answer line. */
  answerMs: number
  /** Timeout of one frame of a stream that this side is ready for. */
  idleMs: number
  /** Timeout of all frames of a collected answer. */
  collectMs: number
}

/**
 * One connection to a guest, which can answer anything. The connection reads on demand and holds at most one line or frame besides the
 * buffer of the stream, so the socket holds back a guest that sends too much.
 *
 * Throws `unavailable` when the connection ends, breaks or is too slow, and for every violation of the protocol: root in the
 * sandbox can answer nonsense, which is no fault of this server.
 */
export class GuestConnection {
  readonly #duplex: Duplex
  readonly #chunks: Buffer[] = []
  #length = 0
  #frames = 0
  #failure: Error | undefined
  #wake: (() => void) | undefined
  #frozen: FreezeReason | undefined
  #freezeListener: (() => void) | undefined

  constructor(duplex: Duplex) {
    this.#duplex = duplex
    duplex.on('readable', this.#onChange)
    duplex.on('end', this.#onChange)
    duplex.on('close', this.#onChange)
    duplex.on('error', this.#onError)
    duplex.on('freeze', this.#onFreeze)
  }

  /** The reason for which the driver wants this connection closed, once it has announced a freeze. */
  get frozen(): FreezeReason | undefined {
    return this.#frozen
  }

  get closed(): boolean {
    return this.#duplex.destroyed
  }

  /** Registers the only listener of `frozen`; called at once after a freeze was announced. */
  onFreeze(listener: () => void): void {
    this.#freezeListener = listener
    if (this.#frozen !== undefined) listener()
  }

  readonly #onFreeze = (reason: FreezeReason): void => {
    if (this.#frozen !== undefined) return
    this.#frozen = reason
    this.#freezeListener?.()
  }

  readonly #onChange = (): void => {
    this.#wake?.()
  }

  readonly #onError = (error: Error): void => {
    this.#failure ??= error
    this.#wake?.()
  }

  close(): void {
    this.#duplex.destroy()
  }

  /** Hands the stream over, with all unread bytes in it. */
  detach(): Duplex {
    this.#duplex.off('readable', this.#onChange)
    this.#duplex.off('end', this.#onChange)
    this.#duplex.off('close', this.#onChange)
    if (this.#failure !== undefined || this.#duplex.destroyed) throw this.#gone()
    if (this.#length > 0) this.#duplex.unshift(this.#take(this.#length))
    this.#duplex.off('error', this.#onError)
    this.#duplex.off('freeze', this.#onFreeze)
    // The new owner listens before the next iteration of the event loop.
    const frozen = this.#frozen
    if (frozen !== undefined) setImmediate(() => this.#duplex.emit('freeze', frozen))
    return this.#duplex
  }

  /** Sends the request and reads the answer line. Throws the fault that the guest answers. */
  async ask<T>(request: object, schema: z.ZodType<T>, wait: WaitOptions): Promise<T> {
    const line = Buffer.from(`${JSON.stringify(request)}\n`)
    if (line.length > lineBytesMax) throw new ServiceError('too_large', 'the request to the sandbox is too large')
    const deadline = new Deadline(wait)
    await this.#write([line], deadline)
    return await parseAnswer(await this.#readLine(deadline), schema)
  }

  async #readLine(deadline: Deadline): Promise<Buffer> {
    let searched = 0
    for (;;) {
      let offset = 0
      for (const chunk of this.#chunks) {
        const from = Math.max(0, searched - offset)
        const at = from < chunk.length ? chunk.indexOf(0x0a, from) : -1
        if (at >= 0 && offset + at <= lineBytesMax) return this.#take(offset + at + 1)
        offset += chunk.length
      }
      searched = this.#length
      if (searched > lineBytesMax) throw nonsense('its answer line is too long')
      if (!(await this.#more(deadline))) throw this.#gone()
    }
  }

  async readFrame(wait: WaitOptions): Promise<Frame> {
    if (++this.#frames % framesPerYield === 0) await guestYield.next()
    const deadline = new Deadline(wait)
    await this.#need(frameHeaderBytes, deadline)
    const header = this.#take(frameHeaderBytes)
    const length = header.readUInt32BE(1)
    if (length > payloadBytesMax) throw nonsense('a frame is too large')
    await this.#need(length, deadline)
    return { kind: header.readUInt8(0), payload: this.#take(length) }
  }

  /** Sends one frame and waits until the stream has room. `payload` has at most `payloadBytesMax` bytes. */
  async send(kind: number, payload: Uint8Array, wait: WaitOptions): Promise<void> {
    const header = Buffer.allocUnsafe(frameHeaderBytes)
    header.writeUInt8(kind, 0)
    header.writeUInt32BE(payload.length, 1)
    await this.#write([header, payload], new Deadline(wait))
  }

  async #write(parts: Uint8Array[], deadline: Deadline): Promise<void> {
    const duplex = this.#duplex
    const { signal } = deadline
    signal?.throwIfAborted()
    if (this.#failure !== undefined || duplex.destroyed || !duplex.writable) throw this.#gone()
    duplex.cork()
    let flowing = true
    for (const part of parts) flowing = duplex.write(part)
    duplex.uncork()
    if (flowing) return
    await new Promise<void>((resolve) => {
      const timer = deadline.start(done)
      function done(): void {
        clearTimeout(timer)
        duplex.off('drain', done)
        duplex.off('close', done)
        signal?.removeEventListener('abort', done)
        resolve()
      }
      duplex.once('drain', done)
      duplex.once('close', done)
      signal?.addEventListener('abort', done, { once: true })
    })
    signal?.throwIfAborted()
    if (duplex.destroyed) throw this.#gone()
    if (duplex.writableNeedDrain) throw deadline.error()
  }

  async #need(count: number, deadline: Deadline): Promise<void> {
    while (this.#length < count) {
      if (!(await this.#more(deadline))) throw this.#gone()
    }
  }

  /** Waits for more bytes; false at the end. */
  async #more(deadline: Deadline): Promise<boolean> {
    const { signal } = deadline
    const wake = (): void => this.#wake?.()
    const timer = deadline.start(wake)
    signal?.addEventListener('abort', wake, { once: true })
    try {
      for (;;) {
        signal?.throwIfAborted()
        const chunk = this.#duplex.read() as Buffer | null
        if (chunk !== null) {
          this.#keep(chunk)
          return true
        }
        if (this.#failure !== undefined || this.#duplex.readableEnded || this.#duplex.destroyed) return false
        if (deadline.isOver) throw deadline.error()
        await new Promise<void>((resolve) => {
          this.#wake = resolve
        })
        this.#wake = undefined
      }
    } finally {
      clearTimeout(timer)
      signal?.removeEventListener('abort', wake)
    }
  }

  /** Joins small chunks: many would cost more than their bytes, and each search for the end of a line visits all of them. */
  #keep(chunk: Buffer): void {
    this.#length += chunk.length
    let joined = chunk
    for (let last = this.#chunks.at(-1); last !== undefined; last = this.#chunks.at(-1)) {
      if (last.length > Math.min(joined.length, joinedBytesMax)) break
      this.#chunks.pop()
      joined = Buffer.concat([last, joined])
    }
    this.#chunks.push(joined)
  }

  #take(count: number): Buffer {
    const first = this.#chunks[0]
    if (first === undefined || count === 0) return Buffer.alloc(0)
    this.#length -= count
    if (first.length > count) {
      this.#chunks[0] = first.subarray(count)
      return first.subarray(0, count)
    }
    if (first.length === count) {
      this.#chunks.shift()
      return first
    }
    const all = Buffer.concat(this.#chunks)
    this.#chunks.length = 0
    if (all.length > count) this.#chunks.push(all.subarray(count))
    return all.subarray(0, count)
  }

  #gone(): ServiceError {
    if (this.#frozen === 'hibernate') return asleep()
    return new ServiceError('unavailable', 'the connection to the sandbox ended', { cause: this.#failure })
  }
}

/** The end of one wait, fixed when it is created: partial data does not renew it. */
class Deadline {
  readonly signal: AbortSignal | undefined
  readonly #timeoutMs: number | undefined
  readonly #until: number

  constructor({ timeoutMs, signal }: WaitOptions) {
    this.signal = signal
    this.#timeoutMs = timeoutMs
    this.#until = timeoutMs === undefined ? Infinity : performance.now() + timeoutMs
  }

  get isOver(): boolean {
    return performance.now() >= this.#until
  }

  /** Calls `expire` after the time. */
  start(expire: () => void): NodeJS.Timeout | undefined {
    if (this.#timeoutMs === undefined) return undefined
    // Rounded up: timers count whole milliseconds and must not fire early.
    return setTimeout(expire, Math.max(0, Math.ceil(this.#until - performance.now())) + 1)
  }

  error(): ServiceError {
    return new ServiceError('unavailable', `the sandbox did not answer within ${this.#timeoutMs} ms`)
  }
}

/** Checks an answer: throws its fault, or `unavailable` for an answer of another shape. */
export async function parseAnswer<T>(bytes: Buffer, schema: z.ZodType<T>): Promise<T> {
  const value = await readJson(bytes, answerBounds)
  const fault = guestFaultSchema.safeParse(value, firstFault)
  if (fault.success) {
    const { code, message } = fault.data
    throw new ServiceError(code, message)
  }
  return check(value, schema)
}

export async function parseValue<T>(
  bytes: Buffer,
  schema: z.ZodType<T>,
  bounds: JsonBounds = answerBounds,
): Promise<T> {
  return check(await readJson(bytes, bounds), schema)
}

export function check<T>(value: unknown, schema: z.ZodType<T>): T {
  const result = schema.safeParse(value, firstFault)
  if (!result.success) throw nonsense('its answer has another shape', result.error)
  return result.data
}

async function readJson(bytes: Buffer, bounds: JsonBounds): Promise<unknown> {
  try {
    return bytes.length > shortBytes ? await parseJson(bytes, bounds) : JSON.parse(bytes.toString('utf8'))
  } catch (error) {
    const isTooMuch = error instanceof JsonBoundError
    throw nonsense(isTooMuch ? 'its answer has too many values' : 'its answer is not JSON', error)
  }
}

/** The error of an operation that a hibernation cut off. */
export function asleep(): ServiceError {
  return new ServiceError('unavailable', 'the sandbox was put to sleep')
}

export function nonsense(what: string, cause?: unknown): ServiceError {
  return new ServiceError('unavailable', `the sandbox answers nonsense: ${what}`, { cause })
}
