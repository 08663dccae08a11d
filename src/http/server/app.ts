import type { EventEmitter } from 'node:events'
import type { IncomingMessage, RequestListener, Server } from 'node:http'
import type { Duplex } from 'node:stream'
import websocket from '@fastify/websocket'
import Fastify from 'fastify'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { ServiceError } from '../../errors.ts'
import { acting } from '../../events/index.ts'
import { actingOf, Authentication, type Caller } from './auth.ts'
import { registerBodies } from './bodies.ts'
import type { Dashboard } from './dashboard.ts'
import { headerBytesMax, type HttpDeps, type HttpLimits } from './config.ts'
import { asServiceError, brokenEscape, errorAnswer } from './errors.ts'
import { hashOf, Idempotency } from './idempotency.ts'
import { forksAgain, isOfForks } from './fork-answer.ts'
import { JsonStream, JsonText } from './json-text.ts'
import type { Metrics } from './metrics.ts'
import { dropWhenStalled } from './least-rate.ts'
import { LiveCalls } from './live-calls.ts'
import { withIds } from './names.ts'
import { auditCall, auditRefusal } from './audit.ts'
import { withinReach } from './reach.ts'
import { assertRoute } from './scopes.ts'
import { taken } from './taken.ts'
import type { OpenApi } from './openapi.ts'
import { assertOwnScript } from './own-scripts.ts'
import { portPathOf, routedUrl } from './port-path.ts'
import type { Answer, Call, Route, WebSocketLike } from './route.ts'
import { sessionText } from './session-view.ts'
import type { Streams } from './streams.ts'
import { ignoredHeader, nameCheckOf } from './unknown-names.ts'
import { checkLargeBody, schemaOf, validateWithZod } from './validation.ts'
import { common } from '../../protocol/http/index.ts'
import { lingerOnClose } from '../../lib/linger.ts'
import { defined } from '../../lib/defined.ts'
import { capsuleTokenPrefix } from '../../lib/secret.ts'

/** Bounds one message of a WebSocket client. */
const messageBytesMax = 8 * 1024 * 1024
export interface AppOptions {
  deps: HttpDeps
  limits: HttpLimits
  streams: Streams
  metrics: Metrics
  openapi: OpenApi
  dashboard: Dashboard | undefined
  routes: readonly Route[]
  /** Makes the Node server around Fastify's listener. */
  createServer(listener: RequestListener): Server
  /** Emits `upgrade` for each WebSocket that is for the API. */
  upgrades: EventEmitter
}

declare module 'fastify' {
  interface FastifyRequest {
    caller?: Caller
    takeSocket?: ((socket: WebSocketLike) => void) | undefined
  }
}

export async function createApp(options: AppOptions): Promise<FastifyInstance> {
  const { deps, limits, metrics, routes } = options
  const app = Fastify({
    serverFactory: (listener) => options.createServer(listener),
    rewriteUrl: routedUrl,
    trustProxy: deps.config.trustProxy ?? false,
    bodyLimit: limits.bodyBytesMax,
    exposeHeadRoutes: false,
    return503OnClosing: false,
    clientErrorHandler: (error, socket) => refuseMalformed(error, socket),
    // Fastify must not refuse a long parameter: `validation.ts` answers it.
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
  const idempotency = new Idempotency(deps.idempotency)
  const rate = { perSecond: limits.requestsPerSecond, burst: limits.requestBurst }
  const authentication = new Authentication(deps, rate)
  const liveCalls = new LiveCalls(deps.organisations)
  app.addHook('onClose', async () => liveCalls[Symbol.dispose]())

  registerBodies(app, limits)
  validateWithZod(app)
  await app.register(websocket, {
    // The plugin only listens to `upgrade`; upgrades of previews do not reach it.
    options: { server: options.upgrades as Server, maxPayload: messageBytesMax },
    preClose: (done) => done(),
    errorHandler: (error, socket) => {
      deps.log.debug({ err: error }, 'a WebSocket broke')
      socket.terminate()
    },
  })
  const ignoredBySocket = new WeakMap<IncomingMessage, string>()
  app.websocketServer.on('headers', (lines: string[], request: IncomingMessage) => {
    const ignored = ignoredBySocket.get(request)
    if (ignored !== undefined) lines.push(`${ignoredHeader}: ${ignored}`)
  })

  app.addHook('onRequest', async (request, reply) => {
    reply.headers(openToBrowsers)
    if (request.method === 'OPTIONS' && !isOptionsOfPort(request)) {
      await reply.code(204).headers(preflightOf(request)).send()
    } else {
      assertWholeEscapes(request)
      assertOwnScript(request)
    }
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
    const page = await options.dashboard?.answer(request)
    if (page !== undefined) return sendAnswer(page, reply, limits)
    await sendError(
      options,
      new ServiceError('not_found', `${request.method} ${pathOf(request)} does not exist`),
      request,
      reply,
    )
  })

  for (const method of routes.flatMap(({ otherMethods = [] }) => otherMethods)) {
    if (!app.supportedMethods.includes(method)) app.addHttpMethod(method, { hasBody: true })
  }
  for (const route of routes) {
    const { body = common.empty, bodyLimit, takesList = false } = route
    const checkNames = nameCheckOf(route)
    app.route({
      method: [route.method, ...(route.otherMethods ?? [])],
      url: route.path,
      // Browsers, link checkers and load balancers ask for pages and probes this way.
      exposeHeadRoute: route.method === 'GET' && (route.auth === 'none' || route.auth === 'probe'),
      schema: schemaOf(route),
      config: { body, takesManifest: bodyLimit === 'manifestBytesMax', takesList },
      ...defined({ bodyLimit: bodyLimit && limits[bodyLimit] }),
      onRequest: async (request, reply) => {
        const caller = await authentication.admit(request, route)
        if (caller !== undefined) request.caller = caller
        try {
          assertRoute(caller, route)
        } catch (error) {
          if (caller !== undefined) auditRefusal(deps.audit, route, request, caller, error)
          throw error
        }
        if (caller !== undefined) countLive(liveCalls, caller, request, reply)
        // Without this error the plugin would open and close a WebSocket.
        if (request.ws && route.upgrade === undefined) {
          throw new ServiceError('invalid_request', 'this address takes no WebSockets')
        }
      },
      preValidation: async (request, reply) => {
        const ignored = checkNames(request)
        if (ignored === undefined) return
        reply.header(ignoredHeader, ignored)
        // The answer to an upgrade is not Fastify's.
        if (request.ws) ignoredBySocket.set(request.raw, ignored)
      },
      preHandler: async (request, reply) => {
        request.body = await checkLargeBody(route, request.body)
        const upgrade = async () =>
          await audited(route, callOf(options, request, reply), async (call) => await route.upgrade?.(call))
        if (request.ws) request.takeSocket = await acting(actingOf(request.caller), upgrade)
      },
      handler: async (request, reply) => {
        const work = () => run(route, callOf(options, request, reply), idempotency)
        const answer = await acting(actingOf(request.caller), work)
        if (answer !== undefined) sendAnswer(answer, reply, limits)
      },
      ...defined({
        wsHandler:
          route.upgrade &&
          ((socket: WebSocketLike, request: FastifyRequest) =>
            acting(actingOf(request.caller), () => request.takeSocket?.(socket))),
      }),
    })
  }
  await app.ready()
  return app
}

/** A WebSocket outlives its reply. */
function countLive(calls: LiveCalls, caller: Caller, { raw, ws }: FastifyRequest, reply: FastifyReply): void {
  const close = calls.open(caller, raw.socket)
  const ends: EventEmitter = ws ? raw.socket : reply.raw
  ends.once('close', close)
}

/** Fastify has validated params, query and body with the schemas of the route. */
function callOf(
  { deps, limits, streams, metrics, openapi, dashboard }: AppOptions,
  request: FastifyRequest,
  reply: FastifyReply,
): Call {
  const orgId = request.caller?.organisation.id ?? ''
  const { query, body } = request
  const params = request.params as Record<string, string>
  const server = { deps, limits, streams, metrics, openapi, dashboard }
  return { orgId, params, query, body, creation: undefined, request, reply, ...server }
}

/** Runs work of a call with ids for names, within what the key reaches, and with an entry in the audit before it. */
async function audited<Result>(route: Route, call: Call, work: (call: Call) => Promise<Result>): Promise<Result> {
  const ready = await withinReach(route, await withIds(call), call)
  const failed = await auditCall(call.deps.audit, route, ready)
  try {
    return await work(ready)
  } catch (error) {
    failed(error)
    throw error
  }
}

/** Runs the handler, once per `Idempotency-Key` on routes that create. */
async function run(route: Route, call: Call, idempotency: Idempotency): Promise<Answer | undefined> {
  const { request, deps, orgId } = call
  const key = request.headers['idempotency-key']
  if (!route.creates || typeof key !== 'string' || request.caller === undefined) {
    return await audited(route, call, (ready) => route.handle(ready))
  }
  const keptFor = request.caller.isOperator === true ? deps.organisations.default().id : orgId
  const hash = request.hash ?? (await hashOf(request, Buffer.alloc(0)))
  return await idempotency.once(
    { orgId: keptFor, key, caller: request.caller, hash },
    {
      run: async (creation) =>
        (await audited(route, { ...call, creation }, (ready) => route.handle(ready))) ?? { statusCode: 204 },
      reserve: () => route.reserve?.(call),
      release: (id) => deps.sandboxes.release(id),
      failed: (error) => errorAnswer(error, pathOf(request)),
      again: (by) => bodyAgain(by, call),
    },
  )
}

/** A body of sessions that was too large to be kept, as they are now. */
async function bodyAgain(by: string, { deps, orgId, reply }: Call): Promise<JsonText | JsonStream> {
  const read = (id: string, sent: Promise<unknown>) => deps.sessions.get(orgId, id, undefined, { sent })
  const sent = taken(reply.raw)
  return isOfForks(by) ? await forksAgain(by, read, sent) : sessionText(await read(by, sent))
}

/** Does not wait until the answer was sent: a waiting caller would keep the body in memory beside its text. */
function sendAnswer({ statusCode, body, headers = {} }: Answer, reply: FastifyReply, limits: HttpLimits): void {
  dropWhenStalled(reply.raw, limits.streamStallMs)
  reply.code(statusCode).headers(headers)
  if (body instanceof JsonText || body instanceof JsonStream) body.send(reply)
  else void reply.send(body)
}

async function sendError(
  { deps, limits }: Pick<AppOptions, 'deps' | 'limits'>,
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<void> {
  const answer = errorAnswer(error, pathOf(request))
  // The client hung up and that aborted its request: not a failure.
  const isGivenUp = reply.raw.destroyed && error instanceof Error && error.name === 'AbortError'
  if (asServiceError(error).code === 'internal_error' && !isGivenUp) {
    deps.log.error({ err: error, method: request.method, path: pathOf(request) }, 'a request failed')
  }
  // The unread rest of a body must not be parsed as the next request.
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

/** Answers bytes that are not HTTP. They have no path, so the answer has the shape of the sandbox API. */
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

/** Refuses a broken escape in a query, which would otherwise name another file. The router refuses one in a path. */
function assertWholeEscapes({ url }: FastifyRequest): void {
  const query = url.indexOf('?')
  if (query === -1 || !url.includes('%', query)) return
  try {
    decodeURIComponent(url.slice(query))
  } catch (error) {
    throw new ServiceError('invalid_request', brokenEscape, { cause: error })
  }
}

/**
 * Without what must not reach a log: the query, which may hold a key or a signature, and the token of a capsule, which is part of the path. A route with
 * a token is told as it is declared, since any letter of a path may be escaped.
 */
function pathOf(request: FastifyRequest): string {
  const route = request.routeOptions.url
  if (route?.includes('/:token') === true) return route
  const [path = '/'] = request.url.split('?', 1)
  return path.replaceAll(capsuleTokens, '[redacted]')
}

const capsuleTokens = new RegExp(`(?<=v1(?:/|%2f)capsules(?:/|%2f))[^/]+|${capsuleTokenPrefix}[A-Za-z0-9_%-]+`, 'gi')

/**
 * Any page may call the API with a key that it has, and none by the cookie of a browser: there is no `Access-Control-Allow-Credentials`. Nobody guesses
 * the type of an answer: it has what tenants have written, in the origin of the dashboard.
 */
const openToBrowsers = {
  'access-control-allow-origin': '*',
  'x-content-type-options': 'nosniff',
  'access-control-expose-headers': `X-Next-Cursor, X-Error-Code, ${ignoredHeader}, Retry-After, Content-Range, Content-Length, Content-Disposition`,
}
const preflight = {
  'access-control-allow-methods': 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS',
  'access-control-allow-headers':
    'X-API-Key, Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Range, If-Range, X-OSB-Async-Wake',
  'access-control-max-age': '86400',
}

/** A page that asks a server in a sandbox sends what that server takes. */
function preflightOf({ raw }: FastifyRequest): Record<string, string> {
  if (portPathOf(raw) === undefined) return preflight
  return { ...preflight, 'access-control-allow-methods': '*', 'access-control-allow-headers': '*, Authorization' }
}

/** A browser asks for leave without a key. With one, OPTIONS is a question to the server in the sandbox. */
function isOptionsOfPort({ raw }: FastifyRequest): boolean {
  const { 'x-api-key': key, authorization } = raw.headers
  return portPathOf(raw) !== undefined && (key ?? authorization) !== undefined
}
