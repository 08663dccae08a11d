import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { acting } from '../events/index.ts'
import { ServiceError, isServiceError } from '../errors.ts'
import { withTimeout } from '../lib/async/timeout.ts'
import { statusOf } from '../lib/error-status.ts'
import { FairListener } from '../lib/fair-listener.ts'
import type { Log } from '../lib/log.ts'
import { TokenBuckets } from '../lib/token-bucket.ts'
import { type EndpointContext, endpoints } from './endpoints.ts'

export interface MetadataOptions extends EndpointContext {
  /** The sandbox of a peer address. */
  sandboxAt: (peerAddress: string) => string | undefined
  log: Log
  limits?: Partial<typeof defaultLimits>
}

const defaultLimits = {
  /** Requests of one sandbox. Beyond this an answer is 429 and closes its connection; packet rules bound new ones. */
  requestsPerSecond: 10,
  requestBurst: 50,
  answerMs: 5_000,
  bodyBytesMax: 4_096,
  headerBytesMax: 8_192,
  connectionsMax: 4_096,
}

/** Host names of the service. A page that reaches it by DNS rebinding sends another one. */
const ownHosts = new Set(['169.254.169.254', '169.254.169.254:80'])
/** Only a page in a browser, or a proxy that somebody else uses, sends one of these. */
const foreignHeaders = ['origin', 'forwarded', 'x-forwarded-for'] as const

interface Answer {
  status: number
  body: object | string
  headers?: Record<string, string>
}

/**
 * Answers sandboxes about themselves. The peer's address alone identifies a sandbox, and packet rules keep it true; nothing in a request
 * counts. Sandboxes are hostile clients.
 */
export class MetadataServer {
  readonly #options: MetadataOptions
  readonly #limits: typeof defaultLimits
  readonly #requests: TokenBuckets
  readonly #listener: FairListener
  /** Connections that get no further answer. */
  readonly #refused = new WeakSet<Socket>()

  constructor(options: MetadataOptions) {
    this.#options = options
    this.#limits = { ...defaultLimits, ...options.limits }
    const { requestsPerSecond: perSecond, requestBurst: burst, answerMs, headerBytesMax, connectionsMax } = this.#limits
    this.#requests = new TokenBuckets({ perSecond, burst })
    const times = { headersTimeout: answerMs, requestTimeout: answerMs, keepAliveTimeout: answerMs }
    this.#listener = new FairListener({
      http: { ...times, connectionsCheckingInterval: 1000, maxHeaderSize: headerBytesMax },
      connectionsMax,
      ownerAt: options.sandboxAt,
      handle: (request, response, sandboxId) => this.#take(request, response, sandboxId),
      log: options.log,
    })
  }

  /** Returns the port in use, for `port: 0`. */
  async listen(address: { host: string; port: number }): Promise<number> {
    return await this.#listener.listen(address)
  }

  /** Stops listening and resolves when requests in flight have ended. */
  async close(): Promise<void> {
    await this.#listener.close()
  }

  async #take(request: IncomingMessage, response: ServerResponse, sandboxId: string | undefined): Promise<void> {
    const { socket } = request
    // Requests behind a refused one may have been read along with it.
    if (this.#refused.has(socket) || socket.destroyed) return
    const waitMs = sandboxId === undefined ? 0 : this.#requests.take(sandboxId)
    if (sandboxId === undefined || waitMs > 0) {
      this.#refused.add(socket)
      const wait = { 'retry-after': String(Math.ceil(waitMs / 1000)) }
      const refusal =
        sandboxId === undefined
          ? { status: 404, body: 'not a sandbox' }
          : { status: 429, body: 'too many requests', headers: wait }
      send(response, refusal, true)
      // Otherwise further requests would be read without a limit until this answer, which waits for earlier ones, has left.
      socket.pause()
      return
    }
    await this.#handle(sandboxId, request, response)
  }

  async #handle(sandboxId: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const failed = (error: unknown) => this.#failure(sandboxId, request.socket, error)
    const as = { actor: { type: 'sandbox', id: sandboxId }, cause: 'inside' } as const
    const answer = await acting(as, () => this.#answer(sandboxId, request)).catch(failed)
    send(response, answer, !request.complete)
  }

  async #answer(sandboxId: string, request: IncomingMessage): Promise<Answer> {
    const { headers, method } = request
    if (!ownHosts.has(headers.host ?? '') || foreignHeaders.some((name) => name in headers)) {
      return { status: 400, body: 'the request is not from inside of the sandbox' }
    }
    const endpoint = endpoints.get((request.url ?? '').split('?', 1)[0] ?? '')
    if (endpoint === undefined) return { status: 404, body: 'unknown path' }
    if (method !== endpoint.method) {
      return { status: 405, body: `only ${endpoint.method} is possible`, headers: { allow: endpoint.method } }
    }
    const work = async () => {
      const body = method === 'POST' ? await this.#body(request) : undefined
      const sandbox = await this.#options.sandboxes.readOfCaller(sandboxId)
      return await endpoint.answer(this.#options, sandbox, body)
    }
    const body = await withTimeout(this.#limits.answerMs, work())
    if (body !== undefined) return { status: 200, body }
    return request.complete ? { status: 500, body: 'it took too long' } : { status: 408, body: 'the body did not come' }
  }

  async #body(request: IncomingMessage): Promise<string> {
    const chunks: Buffer[] = []
    let bytes = 0
    // A refusal must still reach the client.
    const parts: AsyncIterable<Buffer> = request.iterator({ destroyOnReturn: false })
    for await (const chunk of parts) {
      bytes += chunk.length
      if (bytes > this.#limits.bodyBytesMax) throw new ServiceError('invalid_request', 'the body is too large')
      chunks.push(chunk)
    }
    return Buffer.concat(chunks).toString('utf8')
  }

  #failure(sandboxId: string, socket: Socket, error: unknown): Answer {
    if (isServiceError(error) && error.code !== 'internal_error') {
      return { status: statusOf[error.code], body: error.message }
    }
    // The client has left in the middle of its request.
    if (socket.destroyed) return { status: 400, body: 'incomplete request' }
    this.#options.log.error({ err: error, sandboxId }, 'a request to the metadata service failed')
    return { status: 500, body: 'internal error' }
  }
}

/** Errors are plain text. */
function send(response: ServerResponse, { status, body, headers }: Answer, isLast: boolean): void {
  if (response.destroyed) return
  const isText = typeof body === 'string'
  const text = isText ? `${body}\n` : JSON.stringify(body)
  response.writeHead(status, {
    ...headers,
    'content-type': isText ? 'text/plain; charset=utf-8' : 'application/json',
    'content-length': Buffer.byteLength(text),
    'cache-control': 'no-store',
    ...(isLast ? { connection: 'close' } : {}),
  })
  response.end(text)
}
