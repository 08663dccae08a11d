import { silenceMs } from '../../src/protocol/heartbeat.ts'
import type { Atoll, Call, RequestOptions } from './atoll.ts'
import { AtollError, ConnectionError } from './errors.ts'
import { linesOf } from './lines.ts'
import { pause, pauseMs } from './retry.ts'

/** Failures in a row after which the error is thrown. A server that restarts takes seconds. */
const failuresMax = 10
const reopenMs = 100
const reopenMaxMs = 5_000

/** One event of a stream, with its number. */
export interface StreamEvent<Data> {
  sequence: number
  data: Data
}

interface StreamOptions extends RequestOptions {
  after?: number | undefined
  query?: Call['query'] & {}
  /** Called when the connection has broken and is made again. */
  onBreak?: ((error: AtollError) => void) | undefined
  /** Called with the data of an event without a number: it is lost to who is not connected. */
  onPassing?: ((data: string) => void) | undefined
  /** Called when the server has taken a connection, the first one and those after a break. */
  onOpen?: (() => void) | undefined
}

/**
 * Server-sent events from the one after `after` on, over any number of connections: each is seen once, in order. Ends when the server
 * says that there will be none (204). Throws what the server refuses with.
 */
export async function* streamOf<Data>(
  client: Atoll,
  path: string,
  { after = 0, onBreak, onOpen, onPassing, ...options }: StreamOptions,
): AsyncGenerator<StreamEvent<Data>> {
  const { signal } = options
  let last = after
  for (let failures = 0; ;) {
    try {
      const response = await client.open('GET', path, {
        ...options,
        headers: { Accept: 'text/event-stream', ...(last === 0 ? {} : { 'Last-Event-ID': String(last) }) },
      })
      if (response.status === 204 || response.body === null) return
      onOpen?.()
      // A stream that ends cleanly, as when a server stops, is opened again; the pause grows while streams bring nothing.
      failures += 1
      for await (const { id, data, isNumbered } of eventsOf(response.body)) {
        failures = 0
        if (!isNumbered) {
          onPassing?.(data)
          continue
        }
        const sequence = Number(id)
        if (sequence <= last) continue
        last = sequence
        // A number without data: nothing up to it is for this client.
        if (data === '') continue
        yield { sequence, data: JSON.parse(data) as Data }
      }
    } catch (error) {
      failures += 1
      await afterBreak(error, failures, { signal, onBreak })
      continue
    }
    await pause(Math.min(reopenMs * 2 ** failures, reopenMaxMs), signal)
  }
}

/** Waits before a stream that broke is opened again. Throws the error when another connection would not help, or was tried often enough. */
export async function afterBreak(
  error: unknown,
  failures: number,
  { signal, onBreak }: Pick<StreamOptions, 'signal' | 'onBreak'>,
): Promise<void> {
  signal?.throwIfAborted()
  // An error on an open connection is no answer of the server.
  const asOurs = error instanceof AtollError ? error : new ConnectionError('the stream broke', { cause: error })
  const waitMs = failures <= failuresMax ? pauseMs(asOurs, 'always', failures) : undefined
  if (waitMs === undefined) throw asOurs
  onBreak?.(asOurs)
  await pause(waitMs, signal)
}

interface RawEvent {
  id: string
  /** Empty for one without a name. */
  event: string
  /** Empty for one that has a number alone. */
  data: string
  /** Whether it has an `id` of its own. */
  isNumbered: boolean
}

/** Parses a body (HTML standard, § 9.2). Throws when it is silent for too long. */
export async function* eventsOf(body: ReadableStream<Uint8Array>): AsyncGenerator<RawEvent> {
  let id = ''
  let event = ''
  let data: string[] = []
  let isNumbered = false
  for await (const line of linesOf(body, withinSilence)) {
    if (line === '') {
      if (data.length > 0 || isNumbered) yield { id, event, data: data.join('\n'), isNumbered }
      data = []
      event = ''
      isNumbered = false
      continue
    }
    const [, field, value = ''] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? []
    if (field === 'id') {
      id = value
      isNumbered = true
    }
    if (field === 'event') event = value
    if (field === 'data') data.push(value)
  }
}

async function withinSilence<Value>(read: Promise<Value>): Promise<Value> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const silent = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing came for ${silenceMs / 1000} s`)), silenceMs)
  })
  try {
    return await Promise.race([read, silent])
  } finally {
    clearTimeout(timer)
  }
}
