/**
 * The HTTP side of Atoll. One Node server takes all connections; the `Host` header decides whether a request is for a preview
 * or for the API, before anything else of it is looked at.
 */
import { EventEmitter, once } from 'node:events'
import { createServer } from 'node:http'
import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { linger } from '../../lib/linger.ts'
import { singleFlight } from '../../lib/async/single-flight.ts'
import { createApp } from './app.ts'
import { defaultHttpLimits, headerBytesMax } from './config.ts'
import type { HttpDeps } from './config.ts'
import { createMetrics } from './metrics.ts'
import { openApiDocument } from './openapi.ts'
import { routes } from '../routes/index.ts'
import { Streams } from './streams.ts'

export type { HttpConfig, HttpDeps, HttpLimits } from './config.ts'
export type { PreviewPort } from './config.ts'

/** Longer than the idle time of the usual load balancers, so that they and not we close a connection first. */
const keepAliveMs = 75_000
const headersMs = 30_000
const sweepMs = 50
/**
 * Clients vanish without a word: a laptop that is closed, a network that forgets. Asked after this much silence, they are
 * given up some ten seconds later; until then a WebSocket or a long poll of theirs keeps a sandbox awake.
 */
const probeAfterMs = 30_000

export interface HttpServer {
  /** Resolves when connections are accepted. Port 0 takes a free one. */
  listen(address: { host: string; port: number }): Promise<{ host: string; port: number }>
  /** Stops accepting, ends streams so that their clients reconnect, and gives requests under way `graceMs` to finish. */
  close(graceMs: number): Promise<void>
}

export async function createHttpServer(deps: HttpDeps): Promise<HttpServer> {
  const { preview, log } = deps
  // Whoever asks for it often, without a key, costs the database no more than one who does.
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
    openapi: openApiDocument(),
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
      // `close` ends the connections that are idle now; those that become idle later wait for us.
      const sweep = setInterval(() => node.closeIdleConnections(), sweepMs)
      await closed
      clearInterval(sweep)
      clearTimeout(timer)
      await app.close()
    },
  }
}

function nodeServer(deps: HttpDeps, listener: RequestListener, upgrades: EventEmitter): Server {
  const { preview, log } = deps
  const server = createServer(
    {
      // Bodies may take hours; those that are read into memory have a limit of their own.
      requestTimeout: 0,
      headersTimeout: headersMs,
      keepAliveTimeout: keepAliveMs,
      maxHeaderSize: headerBytesMax,
      keepAlive: true,
      keepAliveInitialDelay: probeAfterMs,
      // Only WebSockets are upgrades here; `Upgrade: h2c` and the like are plain requests.
      shouldUpgradeCallback: (request: IncomingMessage) => request.headers.upgrade?.toLowerCase() === 'websocket',
    },
    (request, response) => void direct(request, response),
  )
  server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    socket.on('error', () => socket.destroy())
    void directUpgrade(request, socket, head)
  })
  return server

  async function direct(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      if (hasTwoHosts(request)) {
        response.writeHead(400, { connection: 'close' }).end()
        return
      }
      if (await preview.claims(request.headers.host)) preview.handle(request, response)
      else listener(request, response)
    } catch (error) {
      log.error({ err: error }, 'a host name was not looked up')
      if (response.headersSent) response.destroy()
      else response.writeHead(503, { 'retry-after': '1', connection: 'close' }).end()
    }
  }

  async function directUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    try {
      if (hasTwoHosts(request)) {
        socket.end('HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n')
        linger(socket)
      } else if (await preview.claims(request.headers.host)) preview.upgrade(request, socket, head)
      else upgrades.emit('upgrade', request, socket, head)
    } catch (error) {
      log.error({ err: error }, 'a host name was not looked up')
      socket.destroy()
    }
  }
}

/** We would take the first and the sandbox perhaps the second (RFC 9112 § 3.2). */
function hasTwoHosts({ rawHeaders }: IncomingMessage): boolean {
  let count = 0
  for (let index = 0; index < rawHeaders.length; index += 2) if (rawHeaders[index]?.toLowerCase() === 'host') count++
  return count > 1
}
