/**
 * The HTTP side of Atoll. One Node server takes all connections; the `Host` header decides whether a request is for a preview
 * or for the API, before anything else of it is looked at.
 */
import { EventEmitter, once } from 'node:events'
import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { ServiceError } from '../../errors.ts'
import { linger } from '../../lib/linger.ts'
import { singleFlight } from '../../lib/async/single-flight.ts'
import { createApp } from './app.ts'
import { type Dashboard, readDashboard } from './dashboard.ts'
import { defaultHttpLimits, headerBytesMax, type HttpDeps } from './config.ts'
import { errorAnswer } from './errors.ts'
import { createMetrics } from './metrics.ts'
import { committedOpenApi } from './openapi.ts'
import { isForPort } from './port-path.ts'
import type { Route } from './route.ts'
import { Streams } from './streams.ts'

export type { HostReport, HttpConfig, HttpDeps, HttpLimits, QuarantineReport } from './config.ts'
export type { PreviewPort } from './config.ts'

/** Longer than the idle time of common load balancers, so that they close a connection first. */
const idleConnectionMs = 75_000
const headersMs = 30_000
const sweepMs = 50
/**
 * Clients vanish without closing: TCP probes start after this silence and drop the client some ten seconds later. Until then
 * its WebSocket or long poll keeps a sandbox awake.
 */
const probeAfterMs = 30_000

export interface HttpServer {
  /** Resolves when connections are accepted. Port 0 takes a free one. */
  listen(address: { host: string; port: number }): Promise<{ host: string; port: number }>
  /** Stops accepting, ends streams so that their clients reconnect, and gives requests under way `graceMs` to finish. */
  close(graceMs: number): Promise<void>
}

/** `routes`: every endpoint, `http/routes/index.ts`. */
export async function createHttpServer(deps: HttpDeps, routes: readonly Route[]): Promise<HttpServer> {
  const { preview, log } = deps
  // `/readyz` needs no key: concurrent calls share one query.
  const sharing = { ...deps, ready: singleFlight(() => deps.ready()) }
  const limits = { ...defaultHttpLimits, ...deps.config.limits }
  const streams = new Streams()
  const metrics = createMetrics(deps, streams)
  const upgrades = new EventEmitter()
  let server: Server | undefined
  const app = await createApp({
    deps: sharing,
    limits,
    streams,
    metrics,
    openapi: await committedOpenApi(),
    dashboard: await dashboardOf(deps),
    routes,
    upgrades,
    createServer(listener) {
      server = nodeServer(deps, listener, upgrades)
      return server
    },
  })
  if (server === undefined) throw new Error('Fastify has made no server')
  const node: Server = server
  preview.onAnswer((statusCode) => metrics.previewed(statusCode))
  const sockets = new Set<Socket>()
  node.on('connection', (socket) => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
  })

  return {
    async listen({ host, port }) {
      node.listen({ host, port })
      await once(node, 'listening')
      const { address, port: taken } = node.address() as AddressInfo
      return { host: address, port: taken }
    },
    async close(graceMs) {
      streams.drain()
      preview.drain()
      const closed = node.listening ? once(node, 'close') : Promise.resolve()
      node.close()
      const timer = setTimeout(() => {
        log.warn({ connections: sockets.size }, 'connections were cut off at the end of the grace time')
        for (const socket of sockets) socket.destroy()
      }, graceMs)
      // `close` ends connections that are idle now; the sweep ends connections that become idle later.
      const sweep = setInterval(() => node.closeIdleConnections(), sweepMs)
      await closed
      clearInterval(sweep)
      clearTimeout(timer)
      await app.close()
    },
  }
}

/** The API does not depend on its page. */
async function dashboardOf({ config, log }: HttpDeps): Promise<Dashboard | undefined> {
  try {
    return await readDashboard(config.dashboardDir, config.previewUrl)
  } catch (error) {
    log.warn({ err: error }, 'the dashboard cannot be served; npm run setup builds it anew')
    return undefined
  }
}

function nodeServer(deps: HttpDeps, listener: RequestListener, upgrades: EventEmitter): Server {
  const { preview, log } = deps
  const server = createServer(
    {
      // Uploads may take hours. JSON bodies have their own time limit.
      requestTimeout: 0,
      headersTimeout: headersMs,
      keepAliveTimeout: idleConnectionMs,
      maxHeaderSize: headerBytesMax,
      keepAlive: true,
      keepAliveInitialDelay: probeAfterMs,
      // Only WebSockets are upgrades here; `Upgrade: h2c` and the like are plain requests.
      shouldUpgradeCallback: (request: IncomingMessage) => request.headers.upgrade?.toLowerCase() === 'websocket',
    },
    (request, response) => void direct(request, response),
  )
  // A server in a sandbox decides about `Expect: 100-continue` itself. The API accepts every body.
  server.on(
    'checkContinue',
    (request: IncomingMessage, response: ServerResponse) => void direct(request, response, true),
  )
  server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    socket.on('error', () => socket.destroy())
    void directUpgrade(request, socket, head)
  })
  return server

  async function direct(request: IncomingMessage, response: ServerResponse, isExpecting = false): Promise<void> {
    try {
      if (isAmbiguous(request)) {
        // The parser may refuse what follows the head, and has then answered the request.
        setImmediate(() => {
          if (request.socket.writable) refuse(response, ambiguous)
        })
        return
      }
      if (await preview.claims(request)) preview.handle(request, response)
      else {
        if (isExpecting && !isForPort(request.url)) response.writeContinue()
        listener(request, response)
      }
    } catch (error) {
      log.error({ err: error }, 'a host name was not looked up')
      if (response.headersSent) response.destroy()
      else refuse(response, new ServiceError('unavailable', 'the host name cannot be looked up right now'))
    }
  }

  async function directUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    try {
      if (isAmbiguous(request)) {
        socket.end('HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n')
        linger(socket)
      } else if (await preview.claims(request)) preview.upgrade(request, socket, head)
      else upgrades.emit('upgrade', request, socket, head)
    } catch (error) {
      log.error({ err: error }, 'a host name was not looked up')
      socket.destroy()
    }
  }
}

const ambiguous = new ServiceError(
  'invalid_request',
  'the request has two hosts, or a transfer coding other than chunked',
)

/** The connection ends with the answer, in the shape of the sandbox API: nothing else of the request is known. */
function refuse(response: ServerResponse, error: ServiceError): void {
  const { statusCode, headers, body } = errorAnswer(error, '/')
  const text = JSON.stringify(body)
  response.writeHead(statusCode, {
    ...headers,
    'content-type': 'application/json; charset=utf-8',
    'content-length': Buffer.byteLength(text),
    connection: 'close',
  })
  response.end(text)
}

/**
 * Whether two readers of the request could disagree about it: with two `Host` headers about its host (RFC 9112 § 3.2), with a transfer
 * coding other than `chunked` about its end (§ 6.1). Node reports a request of an unknown coding before its parser refuses it.
 */
function isAmbiguous({ headers, rawHeaders }: IncomingMessage): boolean {
  const coding = headers['transfer-encoding']
  if (coding !== undefined && coding.toLowerCase() !== 'chunked') return true
  let count = 0
  for (let index = 0; index < rawHeaders.length; index += 2) if (rawHeaders[index]?.toLowerCase() === 'host') count++
  return count > 1
}
