import { finished, type Readable } from 'node:stream'
import type { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import { frameKind, payloadBytesMax, writeSchema, writtenSchema } from '../../protocol/guest.ts'
import type { WriteFileOptions } from '../../sandbox/ports/guest.ts'
import { asleep, type GuestConnection, nonsense, parseAnswer, type Reopen, type Timeouts } from './connection.ts'
import { Condition } from './condition.ts'
import { pathField } from './port-values.ts'

/** The guest flushes a file that replaces another before it answers. Hardly any disk writes less than 10 MB each second. */
const slowestDiskBytesPerMs = 10_000

/**
 * Stores a file. A checkpoint ends the connection: the guest keeps the bytes that it has, and another connection goes on behind them.
 * A refusal of the guest does not destroy `body`, so that an HTTP answer can still follow.
 */
export async function storeFile(
  reopen: Reopen,
  path: string,
  body: Readable,
  options: WriteFileOptions,
  timeouts: Timeouts,
): Promise<number> {
  const source = new UploadSource(body)
  try {
    let resume: string | undefined
    for (;;) {
      const request = { op: 'write', ...pathField('path', path), resume, ...options }
      const { connection, bytes } = await reopen(async (opened) => {
        const answer = await opened.ask(request, writeSchema, { timeoutMs: timeouts.answerMs })
        return { connection: opened, bytes: answer.bytes }
      })
      try {
        if (bytes !== source.sentBytes) throw nonsense('another number of bytes than were sent')
        const { answer: written, finish } = await sendBody(connection, source, timeouts, writtenSchema, true)
        if (finish !== (written.paused === undefined ? 'end' : 'pause')) throw nonsense('a result of another kind')
        if (written.bytes !== source.sentBytes) throw nonsense('another number of bytes than were sent')
        if (written.paused === undefined) return written.bytes
        resume = written.paused
      } finally {
        connection.close()
      }
    }
  } finally {
    source.release()
  }
}

/** Sends until the body ends or a freeze comes, where the guest pauses then, and returns the guest's result. Closes the connection. */
export async function sendBody<Answer>(
  connection: GuestConnection,
  source: UploadSource,
  timeouts: Timeouts,
  schema: z.ZodType<Answer>,
  pauses = false,
): Promise<{ answer: Answer; finish: 'end' | 'pause' | undefined }> {
  const wait = { timeoutMs: timeouts.idleMs }
  let finish: 'end' | 'pause' | undefined
  connection.onFreeze(() => source.wake())
  const send = async (): Promise<void> => {
    while (!connection.closed) {
      const part =
        connection.frozen === undefined
          ? await source.next(() => connection.frozen !== undefined || connection.closed)
          : undefined
      if (part === 'end') {
        finish = 'end'
        return connection.send(frameKind.end, Buffer.alloc(0), wait)
      }
      if (part !== undefined) {
        await connection.send(frameKind.data, part, wait)
      } else if (connection.frozen === 'hibernate') {
        throw asleep()
      } else if (connection.frozen !== undefined && !pauses) {
        throw new ServiceError('unavailable', 'a checkpoint of the sandbox came first')
      } else if (connection.frozen !== undefined) {
        finish = 'pause'
        return connection.send(frameKind.pause, Buffer.alloc(0), wait)
      }
    }
  }
  // During the body the guest answers only to refuse it; the wait for the result begins at the end of the body.
  const refused = connection.readFrame({})
  let timer: NodeJS.Timeout | undefined
  try {
    const frame = await new Promise<Awaited<typeof refused>>((resolve, reject) => {
      refused.then(resolve, reject)
      send().then(
        () => {
          // The result can arrive before the last bytes are sent.
          const resultMs = timeouts.answerMs + source.sentBytes / slowestDiskBytesPerMs
          if (!connection.closed) timer = setTimeout(() => connection.close(), resultMs)
        },
        // Prefer a fault of the guest to this error; without one the end of the connection rejects `refused`.
        (error: unknown) => {
          if (source.failure !== undefined || connection.frozen !== undefined) reject(error)
          connection.close()
        },
      )
    })
    if (frame.kind !== frameKind.result) throw nonsense('a frame of another operation')
    return { answer: await parseAnswer(frame.payload, schema), finish }
  } finally {
    clearTimeout(timer)
    connection.close()
    source.wake()
  }
}

/** The bytes of a body, read on demand and counted over all connections. */
export class UploadSource {
  readonly #body: Readable
  readonly #changed = new Condition()
  readonly #stopWatching: () => void
  #rest: Uint8Array | undefined
  #ended = false
  #failure: Error | undefined
  #sentBytes = 0

  constructor(body: Readable) {
    this.#body = body
    body.on('readable', this.wake)
    this.#stopWatching = finished(body, { writable: false }, (error) => {
      this.#ended = true
      this.#failure = error ?? undefined
      this.wake()
    })
  }

  readonly wake = (): void => {
    this.#changed.notify()
  }

  get sentBytes(): number {
    return this.#sentBytes
  }

  get failure(): Error | undefined {
    return this.#failure
  }

  /** The next part, which counts as sent; undefined when `stopped` comes first. Throws the error of the body. */
  async next(stopped: () => boolean): Promise<Uint8Array | 'end' | undefined> {
    for (;;) {
      if (stopped()) return undefined
      if (this.#failure !== undefined) throw this.#failure
      const chunk = this.#rest ?? (this.#body.read() as Uint8Array | string | null)
      if (chunk !== null) {
        const bytes = typeof chunk === 'string' ? Buffer.from(chunk) : chunk
        const part = bytes.subarray(0, payloadBytesMax)
        this.#rest = part.length < bytes.length ? bytes.subarray(part.length) : undefined
        this.#sentBytes += part.length
        if (part.length > 0) return part
      } else if (this.#ended || this.#body.readableEnded) {
        return 'end'
      } else {
        await this.#changed.wait()
      }
    }
  }

  release(): void {
    this.#stopWatching()
    this.#body.off('readable', this.wake)
  }
}
