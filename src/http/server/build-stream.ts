import type { BuildEvent } from '../../image/index.ts'
import { heartbeatMs } from '../../protocol/heartbeat.ts'
import { sandboxErrorBody } from './errors.ts'
import { beginEventStream } from './event-stream.ts'
import { heartbeat } from './event-writer.ts'
import { dropWhenStalled } from './least-rate.ts'
import { onceClosed } from './once-closed.ts'
import type { Call } from './route.ts'
import { logStreamCaps } from './streams.ts'

/** A client with more unsent bytes than this gets no output of build steps. */
const bufferedBytesMax = 4 * 1024 * 1024

type Streamed = Pick<Call, 'reply' | 'streams' | 'deps' | 'limits' | 'orgId'>

interface BuildFollower {
  /** Aborts when the client has left. */
  signal: AbortSignal
  onEvent: (event: BuildEvent) => void
}

/** A request with an `Idempotency-Key` gets JSON, which can be kept. */
export function wantsStream({ request, creation }: Pick<Call, 'request' | 'creation'>): boolean {
  return creation === undefined && (request.headers.accept ?? '').includes('text/event-stream')
}

/** Aborts when the client has left before its answer. */
export function goneSignal({ reply }: Pick<Call, 'reply'>): AbortSignal {
  const gone = new AbortController()
  onceClosed(reply.raw, () => gone.abort())
  return gone.signal
}

/**
 * Answers with the events of a build, then with `result` or `error`. The stream begins with the first event. An error before it is thrown
 * and answered as JSON.
 */
export async function streamBuild(
  call: Streamed,
  work: (follower: BuildFollower) => Promise<unknown>,
): Promise<undefined> {
  const { reply, streams, deps, limits } = call
  const response = reply.raw
  // The stream counts until its connection closes: unsent events stay in memory after the end of the build.
  onceClosed(response, streams.open('events', logStreamCaps(call)))
  const signal = goneSignal(call)
  const send = (event: string, data: object) => {
    begin()
    if (!response.destroyed) response.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`)
  }
  const begin = () => {
    if (!response.headersSent && !response.destroyed) beginEventStream(reply)
  }
  const beat = setInterval(() => {
    begin()
    if (!response.writableNeedDrain && !response.destroyed) response.write(heartbeat)
  }, heartbeatMs)
  const onEvent = ({ event, ...data }: BuildEvent) => {
    if (event === 'build_log' || response.writableLength < bufferedBytesMax) send(event, data)
  }
  try {
    send('result', (await work({ signal, onEvent })) as object)
  } catch (error) {
    if (!response.headersSent && !signal.aborted) throw error
    const body = sandboxErrorBody(error)
    if (body.code === 'internal_error' && !signal.aborted) deps.log.error({ err: error }, 'a build failed')
    send('error', body)
  } finally {
    clearInterval(beat)
    if (response.headersSent && !response.destroyed) {
      dropWhenStalled(response, limits.streamStallMs)
      response.end()
    }
  }
  return undefined
}
