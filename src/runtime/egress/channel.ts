import type { Readable, Writable } from 'node:stream'
import { ServiceError } from '../../errors.ts'
import type { FromEgress, ToEgress } from './frames.ts'
import { readFrame } from './frames.ts'

/** Bytes of a line of the process. It sends entries of a few kilobytes at most. */
export const lineBytesMax = 64 * 1024

export interface ChannelOptions {
  input: Writable
  output: Readable
  answerMs: number
  /** What is no answer. */
  onReport: (report: Exclude<FromEgress, { op: 'ok' | 'error' }>) => void
  /** A line that is no frame. */
  onStrange: () => void
  /** The process does not do what was agreed: it does not answer in time, or says a line without an end. */
  onBroken: (why: string) => void
}

interface Unanswered {
  resolve: () => void
  reject: (error: Error) => void
  timer: NodeJS.Timeout
}

/** Frames to one run of the process, and its lines. Answers are matched by number. */
export class Channel {
  readonly #options: ChannelOptions
  readonly #unanswered = new Map<number, Unanswered>()
  #seq = 0
  #ended: Error | undefined
  /** Of a line whose end has not come. */
  #rest: Buffer[] = []
  #restBytes = 0

  constructor(options: ChannelOptions) {
    this.#options = options
    // The end of the process says what is wrong with its pipes.
    options.input.on('error', () => undefined)
    options.output.on('error', () => undefined)
    options.output.on('data', (chunk: Buffer) => this.#take(chunk))
  }

  /** Resolves when the process says that it has done what the frame says. Throws `unavailable`. The frame is written before this returns. */
  async ask(frame: ToEgress, answerMs = this.#options.answerMs): Promise<void> {
    if (this.#ended !== undefined) throw this.#ended
    this.#seq += 1
    const seq = this.#seq
    const { input, onBroken } = this.#options
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const timer = setTimeout(() => onBroken('it does not answer'), answerMs)
    this.#unanswered.set(seq, { resolve, reject, timer })
    input.write(`${JSON.stringify({ ...frame, seq })}\n`)
    await promise
  }

  get hasEnded(): boolean {
    return this.#ended !== undefined
  }

  /** No answer comes any more. */
  end(why: string): void {
    this.#ended ??= unavailable(why)
    for (const { reject, timer } of this.#unanswered.values()) {
      clearTimeout(timer)
      reject(this.#ended)
    }
    this.#unanswered.clear()
    this.#rest = []
  }

  #take(chunk: Buffer): void {
    let from = 0
    while (this.#ended === undefined) {
      const end = chunk.indexOf(0x0a, from)
      const part = chunk.subarray(from, end === -1 ? undefined : end)
      this.#restBytes += part.length
      if (this.#restBytes > lineBytesMax) {
        this.#options.onBroken('it says a line without an end')
        return
      }
      if (part.length > 0) this.#rest.push(part)
      if (end === -1) return
      const line = this.#rest.length === 1 ? this.#rest[0]! : Buffer.concat(this.#rest)
      this.#rest = []
      this.#restBytes = 0
      from = end + 1
      this.#takeLine(line.toString('utf8'))
    }
  }

  #takeLine(line: string): void {
    const frame = readFrame(line)
    if (frame === undefined) {
      this.#options.onStrange()
      return
    }
    if (frame.op !== 'ok' && frame.op !== 'error') {
      this.#options.onReport(frame)
      return
    }
    const waiting = this.#unanswered.get(frame.seq)
    if (waiting === undefined) return
    this.#unanswered.delete(frame.seq)
    clearTimeout(waiting.timer)
    if (frame.op === 'ok') waiting.resolve()
    else waiting.reject(unavailable(`it refuses what it is told: ${frame.message}`))
  }
}

/** Of what a sandbox with rules needs and the process does not do. */
export function unavailable(why: string): ServiceError {
  return new ServiceError('unavailable', `the egress of sandboxes cannot be held: ${why}`)
}
