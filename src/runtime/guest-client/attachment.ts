import { setTimeout as sleep } from 'node:timers/promises'
import { z } from 'zod'
import { isServiceError, ServiceError } from '../../errors.ts'
import { type AttachAnswer, frameKind } from '../../protocol/guest.ts'
import { freezeGraceMs } from '../../sandbox/ports/runtime-driver.ts'
import type { Attachment, AttachmentEvent } from '../../sandbox/ports/guest.ts'
import { asleep, type Frame, type GuestConnection, nonsense, parseAnswer } from './connection.ts'
import { InputQueue } from './input-queue.ts'
import { Condition } from './condition.ts'

/** Bound of the output that waits here for its reader; the guest sends no more than its credit. */
const creditBytes = 512 * 1024
/** Bound of the waiting events: many tiny ones cost more than their bytes. Later frames, receipts too, wait in the guest. */
const eventsMax = 1024
/** Credit is returned in portions, and sooner when little is left: the guest drops a reader that returns none. */
const creditPortionBytes = 64 * 1024
/** Bound of the input of all waiting writes. */
const inputQueueBytesMax = 16 * 1024 * 1024
/** A freeze's grace is first for input on its way, then for the guest to close its end. */
const settleMs = freezeGraceMs / 2
const closeMs = freezeGraceMs / 4

export interface Joined {
  connection: GuestConnection
  answer: AttachAnswer
}

/** Attaches to the process; a repeat attaches as the same client. */
export type Join = (
  position: { offset: number; credit: number; inputOffset: number },
  signal: AbortSignal | undefined,
) => Promise<Joined>

/**
 * An attached client. States: *open* → *exited* (the exit event came; waiting events are still read) or *failed* (the connection
 * broke, the guest violated the protocol, the sandbox was put to sleep, or the signal aborted) or *closed* (by us).
 *
 * An open attachment gives its connection up when a checkpoint freezes the sandbox. The next connection, made after the thaw, goes on at
 * the byte of output and of input that was reached. On each connection one loop always reads, so that receipts for input arrive even if
 * nobody reads the output, and another loop sends.
 */
export class GuestAttachment implements Attachment {
  readonly #join: Join
  readonly #changed = new Condition()
  readonly #events: AttachmentEvent[] = []
  readonly #signal: AbortSignal | undefined
  /** Aborts the dial of the next connection. */
  readonly #over = new AbortController()
  readonly #input = new InputQueue()
  #connection: GuestConnection | undefined
  #hasInput = false
  #credit = creditBytes
  /** Bytes of output that wait for their reader, or were read and not returned as credit yet. */
  #waitingBytes = 0
  #consumedBytes = 0
  #position = 0
  #resumeAt: number
  #replayed = false
  /** The guest has sent `replayed` on this connection. */
  #live = false
  #acknowledged = 0
  #acknowledgedSent = 0
  /** The reader comes back by another attachment. */
  #comesBack = false
  #state: 'open' | 'exited' | 'failed' | 'closed' = 'open'
  #failure: unknown

  static async open(join: Join, offset: number, signal: AbortSignal | undefined): Promise<GuestAttachment> {
    const joined = await join({ offset, credit: creditBytes, inputOffset: 0 }, signal)
    return new GuestAttachment(join, joined, offset, signal)
  }

  private constructor(join: Join, joined: Joined, offset: number, signal: AbortSignal | undefined) {
    this.#join = join
    this.#resumeAt = offset
    this.#signal = signal
    this.#hasInput = joined.answer.input
    this.#connection = joined.connection
    if (signal?.aborted === true) this.#onAbort()
    signal?.addEventListener('abort', this.#onAbort, { once: true })
    void this.#serve(joined)
  }

  readonly #onAbort = (): void => {
    this.#finish('failed', this.#signal?.reason)
  }

  close({ comesBack = false }: { comesBack?: boolean } = {}): void {
    if (comesBack) this.#comesBack = true
    this.#finish('closed')
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close()
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<AttachmentEvent, void, void> {
    try {
      for (;;) {
        const event = this.#events.shift()
        if (event !== undefined) {
          this.#changed.notify()
          yield event
          if (event.type === 'output') this.#consumed(event.data.length)
          continue
        }
        if (this.#state === 'failed') throw this.#failure
        if (this.#state !== 'open') return
        await this.#changed.wait()
      }
    } finally {
      this.close()
    }
  }

  #consumed(bytes: number): void {
    this.#waitingBytes -= bytes
    this.#consumedBytes += bytes
    if (this.#consumedBytes >= creditPortionBytes || this.#credit < creditPortionBytes) this.#changed.notify()
  }

  async acknowledge(offset: number): Promise<void> {
    if (this.#state !== 'open') return
    this.#acknowledged = Math.max(this.#acknowledged, offset)
    this.#changed.notify()
  }

  async write(data: Uint8Array): Promise<void> {
    this.#assertInput()
    if (this.#input.waitingBytes + data.length > inputQueueBytesMax)
      throw new ServiceError('too_large', 'too much input is waiting')
    const end = this.#input.push(data)
    this.#changed.notify()
    await this.#until(() => this.#input.taken >= end)
  }

  async end(): Promise<void> {
    this.#assertInput()
    this.#input.end()
    this.#changed.notify()
    await this.#until(() => this.#input.endSent)
  }

  #assertInput(): void {
    if (!this.#hasInput) throw new ServiceError('conflict', 'the process has no open input')
    if (this.#input.ended) throw new ServiceError('conflict', 'the input of the process has ended')
    this.#assertOpen()
  }

  async #until(condition: () => boolean): Promise<void> {
    while (!condition()) {
      this.#assertOpen()
      await this.#changed.wait()
    }
  }

  #assertOpen(): void {
    if (this.#state === 'failed') throw this.#failure
    if (this.#state === 'exited') throw new ServiceError('conflict', 'the process has ended')
    if (this.#state === 'closed') throw new ServiceError('conflict', 'the attachment is closed')
  }

  async #serve(first: Joined): Promise<void> {
    try {
      for (let joined = first; ; joined = await this.#rejoin()) {
        const { taken, inputEnded } = joined.answer
        if (!this.#input.resume(taken, inputEnded)) throw nonsense('input taken that was never sent')
        await this.#converse(joined.connection)
        if (this.#state !== 'open') return
        if (joined.connection.frozen === 'hibernate') throw asleep()
      }
    } catch (error) {
      this.#finish('failed', error)
    }
  }

  async #rejoin(): Promise<Joined> {
    this.#credit = creditBytes - this.#waitingBytes
    this.#consumedBytes = 0
    this.#acknowledgedSent = 0
    this.#live = false
    const position = { offset: this.#resumeAt, credit: this.#credit, inputOffset: this.#input.taken }
    const joined = await this.#join(position, this.#over.signal)
    this.#connection = joined.connection
    if (this.#state !== 'open') joined.connection.close()
    return joined
  }

  /** Serves one connection until the process or the attachment ends, or a freeze takes it. */
  async #converse(connection: GuestConnection): Promise<void> {
    const sending = this.#send(connection)
    let closing: Promise<void> | undefined
    connection.onFreeze(() => {
      closing = this.#letGo(connection)
    })
    try {
      await this.#receive(connection)
    } catch (error) {
      if (connection.frozen === undefined || !isServiceError(error, 'unavailable')) throw error
    } finally {
      connection.close()
      this.#changed.notify()
      await sending
      await closing
    }
  }

  /** Gives the connection up within the grace of the freeze. */
  async #letGo(connection: GuestConnection): Promise<void> {
    this.#changed.notify()
    const comesBack = connection.frozen === 'checkpoint'
    // The guest tells a client that comes back what it took; any other must wait for the receipts.
    if (!comesBack) await this.#atMost(settleMs, () => this.#input.settled || connection.closed)
    if (comesBack && !connection.closed) {
      // The guest then closes its end after the output on its way.
      await connection.send(frameKind.pause, uint64(this.#resumeAt), {}).catch(() => undefined)
      await this.#atMost(closeMs, () => connection.closed)
    }
    connection.close()
    this.#changed.notify()
  }

  async #atMost(timeMs: number, condition: () => boolean): Promise<void> {
    const enough = new AbortController()
    const late = sleep(timeMs, true, { signal: enough.signal }).catch(() => true)
    for (let over = false; !over && !condition();) {
      over = await Promise.race([late, this.#changed.wait().then(() => false)])
    }
    enough.abort()
  }

  /** Sends acknowledgements, credit and input until the connection is closed or freezes. */
  async #send(connection: GuestConnection): Promise<void> {
    const wait = { signal: this.#over.signal }
    try {
      while (this.#state === 'open' && !connection.closed && connection.frozen === undefined) {
        if (this.#acknowledged > this.#acknowledgedSent) {
          this.#acknowledgedSent = this.#acknowledged
          await connection.send(frameKind.acknowledge, uint64(this.#acknowledged), wait)
        } else if (this.#consumedBytes >= (this.#credit < creditPortionBytes ? 1 : creditPortionBytes)) {
          const portion = this.#consumedBytes
          this.#consumedBytes = 0
          this.#credit += portion
          await connection.send(frameKind.credit, uint64(portion), wait)
        } else {
          const part = this.#input.next()
          if (part === 'end') {
            await connection.send(frameKind.end, Buffer.alloc(0), wait)
            this.#changed.notify()
          } else if (part === undefined) {
            await this.#changed.wait()
          } else {
            await connection.send(frameKind.data, part, wait)
          }
        }
      }
    } catch {
      // The reading loop reports a broken connection, after its last frames.
    }
  }

  async #receive(connection: GuestConnection): Promise<void> {
    while (this.#state === 'open') {
      if (this.#events.length >= eventsMax) {
        if (connection.closed) return
        await this.#changed.wait()
        continue
      }
      const frame = await connection.readFrame({ signal: this.#signal })
      if (frame.kind === frameKind.result) await parseAnswer(frame.payload, z.never())
      else this.#handle(frame)
      this.#changed.notify()
    }
  }

  #handle({ kind, payload }: Frame): void {
    if (kind === frameKind.stdout || kind === frameKind.stderr) {
      const offset = integer(payload, 0)
      const data = payload.subarray(8)
      this.#credit -= data.length
      if (data.length === 0 || this.#credit < 0 || offset < this.#position)
        throw nonsense('output that may not be here')
      this.#position = offset + data.length
      this.#resumeAt = this.#position
      this.#waitingBytes += data.length
      const stream = kind === frameKind.stdout ? 'stdout' : 'stderr'
      // The last byte of the offset is free from here on.
      this.#events.push({ type: 'output', stream, offset, data, headed: payload.subarray(7) })
    } else if (kind === frameKind.replayed) {
      const offset = integerPayload(payload)
      if (this.#live) throw nonsense('a second end of what was kept')
      this.#live = true
      this.#resumeAt = Math.max(this.#position, offset)
      if (!this.#replayed) this.#events.push({ type: 'replayed', offset })
      this.#replayed = true
    } else if (kind === frameKind.taken) {
      const bytes = integerPayload(payload)
      if (bytes === 0 || !this.#input.take(bytes)) throw nonsense('no input taken, or more than sent')
    } else if (kind === frameKind.exit) {
      const timedOut = payload.length === 5 && payload[4] === 1
      const exitCode = payload.length === 4 || timedOut ? payload.readInt32BE(0) : -1
      if (exitCode < 0 || exitCode > 255) throw nonsense('an impossible exit code')
      this.#events.push({ type: 'exit', exitCode, ...(timedOut ? { timedOut } : {}) })
      this.#finish('exited')
    } else {
      throw nonsense('a frame of another operation')
    }
  }

  /** Tells the guest that its process need not wait for this client. After a cut it waits a while for the client to come back. */
  #leave(): void {
    const connection = this.#connection
    if (connection === undefined || connection.closed || connection.frozen !== undefined || this.#comesBack) return
    connection.send(frameKind.leave, Buffer.alloc(0), {}).catch(() => undefined)
  }

  #finish(state: 'exited' | 'failed' | 'closed', failure?: unknown): void {
    if (this.#state === 'open') {
      this.#state = state
      this.#failure = failure
      if (state !== 'exited') this.#leave()
    } else if (this.#state === 'exited' && state === 'closed') {
      this.#state = state
    }
    if (state === 'closed') this.#events.length = 0
    this.#signal?.removeEventListener('abort', this.#onAbort)
    this.#over.abort()
    this.#connection?.close()
    this.#changed.notify()
  }
}

function uint64(value: number): Buffer {
  const payload = Buffer.allocUnsafe(8)
  payload.writeBigUInt64BE(BigInt(value))
  return payload
}

function integerPayload(payload: Buffer): number {
  if (payload.length !== 8) throw nonsense('a number of another size')
  return integer(payload, 0)
}

function integer(payload: Buffer, at: number): number {
  if (payload.length < at + 8) throw nonsense('a number of another size')
  const value = payload.readBigUInt64BE(at)
  if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw nonsense('a number out of range')
  return Number(value)
}
