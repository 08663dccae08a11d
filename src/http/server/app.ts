import type { EventEmitter } from 'node:events'
import type { RequestListener, Server } from 'node:http'
import type { Duplex } from 'node:stream'
import websocket from '@fastify/websocket'
import Fastify from 'fastify'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { ServiceError } from '../../errors.ts'
import { Authentication } from './auth.ts'
import type { Caller } from './auth.ts'
import { bodyBudget, check, parseJson, readBody } from './body.ts'
import { headerBytesMax } from './config.ts'
import type { HttpDeps, HttpLimits } from './config.ts'
import { asServiceError, errorAnswer } from './errors.ts'
import { hashOf, Idempotency } from './idempotency.ts'
import { JsonText } from './json-text.ts'
import type { Metrics } from './metrics.ts'
import { closed } from './once-closed.ts'
import type { OpenApi } from './openapi.ts'
import type { Answer, Call, Route, WebSocketLike } from './route.ts'
import { sessionText } from '../routes/sessions.ts'
import { dropWhenStalled } from './stalled.ts'
import type { Streams } from './streams.ts'
import type { BodyBudget } from '../../lib/held-body.ts'
import { lingerOnClose } from '../../lib/linger.ts'
import { TokenBuckets } from '../../lib/token-bucket.ts'

/** One message of input from a WebSocket client. */
const messageBytesMax = 8 * 1024 * 1024
/** What an id in a path can look like; anything else names nothing. */
const idPattern = /^[A-Za-z0-9_.-]{1,128}$/

export interface AppOptions {
  deps: HttpDeps
  limits: HttpLimits
  streams: Streams
  metrics: Metrics
  openapi: OpenApi
  routes: readonly Route[]
  /** Makes the Node server around Fastify's listener. */
  createServer(listener: RequestListener): Server
  /** Emits `upgrade` for each WebSocket that is for the API. */
  upgrades: EventEmitter
}

declare module 'fastify' {
  interface FastifyRequest {
    caller?: Caller
    takeSocket?: (socket: WebSocketLike) => void
  }
}

/** Fastify routes, and nothing more: bodies, checks, errors and logs are ours, so that each is in one place. */
export async function createApp(options: AppOptions): Promise<FastifyInstance> {
  const { deps, limits, metrics, routes } = options
  const app = Fastify({
    serverFactory: (listener) => options.createServer(listener),
    trustProxy: deps.config.trustProxy ?? false,
    exposeHeadRoutes: false,
    return503OnClosing: false,
    clientErrorHandler: (error, socket) => refuseMalformed(error, socket),
    // No parameter of a request is longer than its head: what an id can be is told by `idPattern`.
    routerOptions: { maxParamLength: headerBytesMax },
    frameworkErrors: (error, request, reply) => {
      let refusal: unknown = error
      try {
        authentication.limitAddress(request)
      } catch (limit) {
        refusal = limit
      }
      void sendError(options, refusal, request, reply)
    },
  })
  const bodies = bodyBudget(limits)
  const idempotency = new Idempotency(deps.idempotency)
  const buckets = new TokenBuckets({ perSecond: limits.requestsPerSecond, burst: limits.requestBurst })
  const authentication = new Authentication(deps, buckets)

  // Handlers read the request themselves: as JSON with a limit of their own, or as a stream.
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('*', (_request, _payload, done) => done(null))

  await app.register(websocket, {
    // The plugin only listens to upgrades on it; those of previews never get here.
    options: { server: options.upgrades as Server, maxPayload: messageBytesMax },
    preClose: (done) => done(),
    errorHandler: (error, socket) => {
      deps.log.debug({ err: error }, 'a WebSocket broke')
      socket.terminate()
    },
  })

  app.addHook('onRequest', async (request, reply) => {
    reply.headers(openToBrowsers)
    // Bodies are read for what the route says they are. Fastify would refuse a type that it cannot parse.
    delete request.raw.headers['content-type']
    if (request.method === 'OPTIONS') await reply.code(204).headers(preflight).send()
  })
  app.addHook('onResponse', async (request, reply) => {
    const seconds = reply.elapsedTime / 1000
    const route = request.routeOptions.url ?? 'unknown'
    metrics.requested({ method: request.method, route, statusCode: reply.statusCode, seconds })
    const facts = {
      method: request.method,
      path: pathOf(request),
      statusCode: reply.statusCode,
      ms: Math.round(reply.elapsedTime),
      orgId: request.caller?.organisation.id,
      address: request.ip,
    }
    deps.log.debug(facts, 'request')
  })
  app.setErrorHandler((error, request, reply) => sendError(options, error, request, reply))
  app.setNotFoundHandler(async (request, reply) => {
    authentication.limitAddress(request)
    await sendError(
      options,
      new ServiceError('not_found', `${request.method} ${pathOf(request)} does not exist`),
      request,
      reply,
    )
  })

  const handling: Handling = { ...options, bodies, idempotency }
  for (const route of routes) {
    app.route({
      method: route.method,
      url: route.path,
      // Fastify would otherwise answer a websocket request on a plain route by opening and closing it.
      preHandler: async (request, reply) => {
        const caller = await authentication.admit(request, route)
        if (caller !== undefined) request.caller = caller
        if (!request.ws) return
        if (route.upgrade === undefined) throw new ServiceError('invalid_request', 'this address takes no WebSockets')
        request.takeSocket = await route.upgrade(call(options, route, request, reply))
      },
      handler: async (request, reply) => await handle(handling, route, request, reply),
      ...(route.upgrade === undefined
        ? {}
        : { wsHandler: (socket: WebSocketLike, request: FastifyRequest) => request.takeSocket?.(socket) }),
    })
  }
  await app.ready()
  return app
}

interface Handling extends AppOptions {
  bodies: BodyBudget
  idempotency: Idempotency
}

async function handle(options: Handling, route: Route, request: FastifyRequest, reply: FastifyReply): Promise<void> {
  const { deps } = options
  const { body, hash } = await receive(options, route, request)
  const ready = call(options, route, request, reply, body)
  const key = request.headers['idempotency-key']
  const answer =
    typeof key === 'string' && request.caller !== undefined && hash !== undefined
      ? await options.idempotency.once(
          { orgId: request.caller.organisation.id, key, caller: request.caller, hash },
          {
            run: async (creation) => (await route.handle({ ...ready, creation })) ?? { statusCode: 204 },
            failed: (error) => errorAnswer(error, pathOf(request)),
            session: async (id) =>
              sessionText(await deps.sessions.get(ready.orgId, id, undefined, { sent: closed(reply.raw) })),
          },
        )
      : await route.handle(ready)
  if (answer !== undefined) sendAnswer(answer, reply, options.limits)
}

interface Received {
  body?: unknown
  /** Of the whole request, where a repeat must be known from another one. */
  hash?: string
}

/** Reads and parses a body. Its bytes are let go of here: what comes of the request may take hours. */
async function receive({ limits, bodies }: Handling, route: Route, request: FastifyRequest): Promise<Received> {
  if (route.body === undefined || route.body === 'raw') return {}
  using share = bodies.open(request.caller?.organisation.id)
  const raw = await readBody(request.raw, limits[route.bodyLimit ?? 'bodyBytesMax'], share)
  const isRepeatable = route.creates && request.headers['idempotency-key'] !== undefined
  return {
    body: await parseJson(raw),
    ...(isRepeatable ? { hash: hashOf(request.method, pathOf(request), raw) } : {}),
  }
}

/** Checks all that the client sent. */
function call(
  { deps, limits, streams, metrics, openapi }: AppOptions,
  route: Route,
  request: FastifyRequest,
  reply: FastifyReply,
  sent?: unknown,
): Call {
  const params = request.params as Record<string, string>
  for (const value of Object.values(params)) {
    if (!idPattern.test(value))
      throw new ServiceError('not_found', `${JSON.stringify(value.slice(0, 40))} does not exist`)
  }
  if (route.headers !== undefined) check(route.headers, sentHeaders(request), 'headers')
  const query = route.query === undefined ? undefined : check(route.query, sentValues(request.query), 'query')
  const body =
    sent === undefined || route.body === undefined || route.body === 'raw' ? undefined : check(route.body, sent, 'body')
  const orgId = request.caller?.organisation.id ?? ''
  return { orgId, params, query, body, creation: undefined, request, reply, deps, limits, streams, metrics, openapi }
}

/**
 * A parameter that is repeated counts once, the first time. An empty one is none, but for an owner: whoever asks for the
 * sessions of a user without a name must not get those of all.
 */
function sentValues(query: unknown): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(query as Record<string, unknown>)
      .map(([name, value]): [string, unknown] => [name, Array.isArray(value) ? value[0] : value])
      .filter(([name, value]) => value !== '' || name === 'user_id'),
  )
}

/** An empty header is none. */
function sentHeaders(request: FastifyRequest): Record<string, unknown> {
  return Object.fromEntries(Object.entries(request.headers).filter(([, value]) => value !== ''))
}

/** Nobody waits until it was sent: whoever did would keep the answer in memory as it was before it became text. */
function sendAnswer({ statusCode, body, headers = {} }: Answer, reply: FastifyReply, limits: HttpLimits): void {
  dropWhenStalled(reply.raw, limits.streamStallMs)
  reply.code(statusCode).headers(headers)
  if (body === undefined) void reply.send()
  else if (typeof body === 'string' && headers['content-type'] !== undefined) void reply.send(body)
  else if (body instanceof JsonText) body.send(reply)
  else void reply.type('application/json; charset=utf-8').send(JSON.stringify(body))
}

async function sendError(
  { deps, limits }: Pick<AppOptions, 'deps' | 'limits'>,
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<void> {
  const answer = errorAnswer(error, pathOf(request))
  // What ran for a client that hung up was ended because of that: no failure.
  const isGivenUp = reply.raw.destroyed && error instanceof Error && error.name === 'AbortError'
  if (asServiceError(error).code === 'internal_error' && !isGivenUp) {
    deps.log.error({ err: error, method: request.method, path: pathOf(request) }, 'a request failed')
  }
  // What is left of a body that nobody wants must not be read as the next request.
  if (
    !request.raw.complete &&
    (request.headers['content-length'] ?? request.headers['transfer-encoding']) !== undefined
  ) {
    reply.header('connection', 'close')
    lingerOnClose(request.raw.socket)
  }
  sendAnswer(answer, reply, limits)
}

const malformed: Record<string, [statusCode: number, reason: string]> = {
  HPE_HEADER_OVERFLOW: [431, 'Request Header Fields Too Large'],
  ERR_HTTP_REQUEST_TIMEOUT: [408, 'Request Timeout'],
}

/** What is no HTTP has no path, so the answer has the shape of the sandbox API. */
function refuseMalformed({ code = '' }: NodeJS.ErrnoException, socket: Duplex): void {
  if (code === 'ECONNRESET' || !socket.writable) {
    socket.destroy()
    return
  }
  const [statusCode, reason] = malformed[code] ?? [400, 'Bad Request']
  const body = JSON.stringify({ error: 'the request is malformed', code: 'invalid_request' })
  const head = `HTTP/1.1 ${statusCode} ${reason}\r\ncontent-type: application/json; charset=utf-8`
  socket.end(`${head}\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`)
}

/** Without the query, which may hold a key or a signature and must not reach a log. */
function pathOf(request: FastifyRequest): string {
  const [path = '/'] = request.url.split('?', 1)
  return path
}

/** Browsers are clients too. The API has no cookies, so any page may ask with the key that it has. */
const openToBrowsers = {
  'access-control-allow-origin': '*',
  'access-control-expose-headers': 'X-Next-Cursor, Retry-After, Content-Range, Content-Length, Content-Disposition',
}
const preflight = {
  'access-control-allow-methods': 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS',
  'access-control-allow-headers':
    'X-API-Key, Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Range, If-Range, X-OSB-Async-Wake',
  'access-control-max-age': '86400',
}
