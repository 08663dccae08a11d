import { Agent as HttpAgent, request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'
import { setTimeout as sleep } from 'node:timers/promises'
import { backOffMs } from '../lib/async/retry.ts'
import type { Log } from '../lib/log.ts'
import type { GatewayLimits } from './limits.ts'

/** An error answer is read completely before it is passed on or retried. */
const errorBytesMax = 256 * 1024
const errorBodyMs = 10_000

export interface UpstreamCall {
  url: URL
  headers: Record<string, string>
  /** The slices of the body, in order. */
  pieces: readonly Buffer[]
  byteCount: number
  /**
   * Called when the call is given up, by its signal or after a timeout, while the model API has the whole request and has answered nothing
   * for `silentMs`: it may be working, and charges for that.
   */
  onUnanswered: (silentMs: number) => void
}

export type UpstreamAnswer =
  /** `askedAtMs` is a `performance.now()`. */
  | { kind: 'stream'; response: IncomingMessage; askedAtMs: number }
  | { kind: 'error'; status: number; headers: IncomingMessage['headers']; body: Buffer }

/** Connections to model APIs, for the life of a gateway. `close` drops the idle ones. */
export class UpstreamCaller {
  readonly #limits: GatewayLimits
  readonly #http = new HttpAgent({ keepAlive: true })
  readonly #https = new HttpsAgent({ keepAlive: true })

  constructor(limits: GatewayLimits) {
    this.#limits = limits
  }

  close(): void {
    this.#http.destroy()
    this.#https.destroy()
  }

  /**
   * Calls until an answer comes that is to be passed on, for at most `retryMs`; the pause between two calls doubles, has
   * jitter and is at least what `retry-after` says. Throws the last connection error, or the reason of `signal`.
   */
  async call(call: UpstreamCall, signal: AbortSignal, log: Log, fields: object): Promise<UpstreamAnswer> {
    const deadline = performance.now() + this.#limits.retryMs
    for (let attempt = 0; ; attempt++) {
      signal.throwIfAborted()
      let answer: UpstreamAnswer | undefined
      let failure: unknown
      try {
        answer = await this.#once(call, signal)
        if (answer.kind === 'stream' || !mayRetry(answer)) return answer
      } catch (error) {
        signal.throwIfAborted()
        if (!(error instanceof ConnectError)) throw error
        failure = error
      }
      const pauseMs = Math.max(this.#pauseMs(attempt), retryAfterMs(answer))
      if (performance.now() + pauseMs > deadline) {
        if (answer) return answer
        throw failure
      }
      const reason = answer?.kind === 'error' ? answer.status : (failure as ConnectError).reason
      log.warn({ ...fields, attempt: attempt + 1, reason }, 'model API failed, trying again')
      await sleep(pauseMs, undefined, { signal })
    }
  }

  async #once(call: UpstreamCall, signal: AbortSignal): Promise<UpstreamAnswer> {
    const askedAtMs = performance.now()
    const response = await this.#send(call, askedAtMs, signal)
    const status = response.statusCode ?? 502
    if (status < 400) return { kind: 'stream', response, askedAtMs }
    return { kind: 'error', status, headers: response.headers, body: await errorBody(response) }
  }

  #send({ url, headers, pieces, byteCount, onUnanswered }: UpstreamCall, askedAtMs: number, signal: AbortSignal) {
    const { upstreamFirstByteMs, upstreamIdleMs } = this.#limits
    const isTls = url.protocol === 'https:'
    const options: RequestOptions = {
      method: 'POST',
      headers: { ...headers, 'content-length': String(byteCount) },
      signal,
      agent: isTls ? this.#https : this.#http,
    }
    const request = (isTls ? httpsRequest : httpRequest)(url, options)
    // No closure here may reference the body: they live until the end of the answer.
    const answered = new Promise<IncomingMessage>((resolve, reject) => {
      request.setTimeout(upstreamFirstByteMs, () => request.destroy(new UpstreamTimeout()))
      let isAwaited = false
      // `finish` is also emitted for a destroyed request.
      request.on('finish', () => (isAwaited = !request.destroyed))
      request.on('error', (error) => {
        const isGivenUp = error instanceof UpstreamTimeout || signal.aborted
        if (isGivenUp && isAwaited) onUnanswered(performance.now() - askedAtMs)
        reject(isGivenUp ? error : new ConnectError(error))
      })
      request.on('response', (response) => {
        isAwaited = false
        request.setTimeout(upstreamIdleMs, () => response.destroy(new UpstreamTimeout()))
        resolve(response)
      })
    })
    for (const piece of pieces) request.write(piece)
    request.end()
    return answered
  }

  #pauseMs(attempt: number): number {
    const { retryPauseFirstMs, retryPauseMaxMs } = this.#limits
    return backOffMs(attempt + 1, { firstMs: retryPauseFirstMs, maxMs: retryPauseMaxMs, jitter: 0.5 })
  }
}

/** The upstream accepted the request but did not answer in time. It may still be working, so the call is not retried. */
export class UpstreamTimeout extends Error {
  constructor() {
    super('The model API did not answer in time.')
  }
}

/** No answer: refused, unreachable, or reset before the first byte. */
class ConnectError extends Error {
  readonly reason: string

  constructor(cause: NodeJS.ErrnoException) {
    super('The model API cannot be reached.', { cause })
    this.reason = cause.code ?? cause.name
  }
}

/** Whether the API refused for now, or failed, itself or a proxy before it. Unsupported requests (501, 505) are final. */
function mayRetry({ status, headers, body }: UpstreamAnswer & { kind: 'error' }): boolean {
  const isTransient = status === 408 || status === 429 || (status >= 500 && status !== 501 && status !== 505)
  // OpenAI's 429 for an account without credit is final.
  return isTransient && headers['x-should-retry'] !== 'false' && !body.includes('insufficient_quota')
}

function retryAfterMs(answer: UpstreamAnswer | undefined): number {
  const value = answer?.kind === 'error' ? answer.headers['retry-after'] : undefined
  if (value === undefined) return 0
  const seconds = Number(value)
  if (Number.isFinite(seconds)) return Math.max(0, seconds * 1000)
  const date = Date.parse(value)
  return Number.isNaN(date) ? 0 : Math.max(0, date - Date.now())
}

async function errorBody(response: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = []
  let length = 0
  response.setTimeout(errorBodyMs, () => response.destroy())
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      length += chunk.length
      if (length > errorBytesMax) break
      chunks.push(chunk)
    }
  } catch {
    // A partial error is still an error.
  }
  return Buffer.concat(chunks)
}
