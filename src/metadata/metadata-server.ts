import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { acting } from '../events/index.ts'
import { type ErrorCode, ServiceError, isServiceError } from '../errors.ts'
import { withTimeout } from '../lib/async/timeout.ts'
import { FairConnections } from '../lib/fair-connections.ts'
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
  /** Of one sandbox. Beyond it an answer is 429 and closes its connection; packet rules bound new ones. */
  requestsPerSecond: 10,
  requestBurst: 50,
  answerMs: 5_000,
  bodyBytesMax: 4_096,
  headerBytesMax: 8_192,
  connectionsMax: 4_096,
}

/** How sandboxes name the service. A page that was led here by the DNS of its own name (rebinding) has another. */
const ownHosts = new Set(['169.254.169.254', '169.254.169.254:80'])
/** Only a page in a browser, or a proxy that somebody else uses, sends one of these. */
const foreignHeaders = ['origin', 'forwarded', 'x-forwarded-for'] as const

const statusOfError: Partial<Record<ErrorCode, number>> = {
  invalid_request: 400,
  scaling_locked: 403,
  not_found: 404,
  sandbox_stopped: 404,
  conflict: 409,
  oom_floor: 409,
  rate_limited: 429,
  unavailable: 503,
  no_capacity: 503,
}

interface Answer {
  status: number
  body: object | string
  headers?: Record<string, string>
}

/**
 * Answers sandboxes about themselves. Who asks is known by the address alone, which the packet rules make true; nothing that a request
 * says counts. Sandboxes are hostile clients.
 */
export class MetadataServer {
  readonly #options: MetadataOptions
  readonly #limits: typeof defaultLimits
  readonly #requests: TokenBuckets
  readonly #server: Server
  readonly #handling = new Set<Promise<void>>()
  /** Who asks. Of a connection, not of a request: the address may have another owner by then. */
  readonly #askers = new WeakMap<Socket, string | undefined>()
  /** Connections that get no further answer. */
  readonly #refused = new WeakSet<Socket>()

  constructor(options: MetadataOptions) {
    this.#options = options
    this.#limits = { ...defaultLimits, ...options.limits }
    const { requestsPerSecond: perSecond, requestBurst: burst, answerMs, headerBytesMax } = this.#limits
    this.#requests = new TokenBuckets({ perSecond, burst })
    const times = { headersTimeout: answerMs, requestTimeout: answerMs, keepAliveTimeout: answerMs }
    this.#server = createServer(
      { ...times, connectionsCheckingInterval: 1000, maxHeaderSize: headerBytesMax },
      (request, response) => this.#take(request, response),
    )
    const connections = new FairConnections(this.#limits.connectionsMax)
    // Node would answer it by itself, past all bounds.
    this.#server.on('checkExpectation', (request: IncomingMessage, response: ServerResponse) =>
      this.#take(request, response),
    )
    this.#server.on('connection', (socket: Socket) => {
      const asker = this.#options.sandboxAt(socket.remoteAddress ?? '')
      if (connections.admit(asker ?? '', socket)) this.#askers.set(socket, asker)
    })
  }

  /** Returns the port in use, for `port: 0`. */
  async listen({ host, port }: { host: string; port: number }): Promise<number> {
    this.#server.listen(port, host)
    await once(this.#server, 'listening')
    return (this.#server.address() as AddressInfo).port
  }

  /** Stops listening and resolves when requests in flight have ended. */
  async close(): Promise<void> {
    const closed = once(this.#server, 'close')
    this.#server.close()
    this.#server.closeAllConnections()
    await closed
    await Promise.all(this.#handling)
  }

  #take(request: IncomingMessage, response: ServerResponse): void {
    const { socket } = request
    // What was sent behind a refused request has come with it.
    if (this.#refused.has(socket) || socket.destroyed) return
    const sandboxId = this.#askers.get(socket)
    const waitMs = sandboxId === undefined ? 0 : this.#requests.take(sandboxId)
    if (sandboxId === undefined || waitMs > 0) {
      this.#refused.add(socket)
      const wait = { 'retry-after': String(Math.ceil(waitMs / 1000)) }
      const refusal =
        sandboxId === undefined
          ? { status: 404, body: 'not a sandbox' }
          : { status: 429, body: 'too many requests', headers: wait }
      send(response, refusal, true)
      // Requests behind this one would be read as fast as they come until the answer, which waits for those to the ones before, has left.
      socket.pause()
      return
    }
    const handled = this.#handle(sandboxId, request, response).finally(() => this.#handling.delete(handled))
    this.#handling.add(handled)
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
    const status = isServiceError(error) ? statusOfError[error.code] : undefined
    if (status !== undefined) return { status, body: (error as ServiceError).message }
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
