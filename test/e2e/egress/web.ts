import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer as createHttp, type IncomingMessage, type ServerResponse } from 'node:http'
import { createSecureServer, type Http2ServerRequest, type Http2ServerResponse } from 'node:http2'
import type { Socket } from 'node:net'
import type { SecureContext, TLSSocket } from 'node:tls'
import { WebSocketServer } from 'ws'
import { type Journal, noteConnection, type SeenRequest } from './journal.ts'
import { ports } from './places.ts'

export type Request = IncomingMessage | Http2ServerRequest
export type Response = ServerResponse | Http2ServerResponse

/** One request of one host, whose body has not been read. */
export interface Exchange {
  request: Request
  response: Response
  /** Grows as the body comes; it is whole after `body()`. */
  seen: SeenRequest
  url: URL
  /** Reads the body to its end; it is at most `bytesKept` long, the rest is only counted and hashed. */
  body(): Promise<Buffer>
}

/** Certificates: of a name, and for those who name nobody. */
export interface Served {
  cert: string
  key: string
  contextOf(sni: string): SecureContext
}

export type Site = (exchange: Exchange) => Promise<void> | void

const bytesKept = 8 * 1024 * 1024
const journalBytesMax = 64 * 1024

/** HTTP and HTTPS, each name a site, with WebSocket at any path of any. */
export class Web {
  readonly #journal: Journal
  readonly #siteOf: (host: string) => Site
  readonly #sockets = new WebSocketServer({ noServer: true })

  constructor(journal: Journal, siteOf: (host: string) => Site) {
    this.#journal = journal
    this.#siteOf = siteOf
  }

  async listen({ cert, key, contextOf }: Served): Promise<void> {
    const plain = createHttp((request, response) => void this.#serve(request, response))
    plain.on('upgrade', (request: IncomingMessage, socket: Socket, head: Buffer) =>
      this.#upgrade(request, socket, head),
    )
    plain.on('connection', (socket: Socket) => noteConnection(this.#journal, socket))
    plain.listen(ports.http)
    await once(plain, 'listening')
    for (const port of [ports.https, ports.httpsToo]) {
      const secure = createSecureServer(
        { allowHTTP1: true, cert, key, SNICallback: (sni, give) => give(null, contextOf(sni)) },
        (request, response) => void this.#serve(request, response),
      )
      secure.on('upgrade', (request: IncomingMessage, socket: Socket, head: Buffer) =>
        this.#upgrade(request, socket, head),
      )
      secure.on('connection', (socket: Socket) => noteConnection(this.#journal, socket))
      secure.on('secureConnection', (socket: TLSSocket) =>
        this.#journal.add({ kind: 'tls', port, sni: sniOf(socket), alpn: socket.alpnProtocol || '' }),
      )
      secure.on('tlsClientError', () => undefined)
      secure.listen(port)
      await once(secure, 'listening')
    }
  }

  async #serve(request: Request, response: Response): Promise<void> {
    const seen = this.#note(request)
    response.on('error', () => undefined)
    const url = new URL(seen.path.startsWith('/') ? `http://site${seen.path}` : 'http://site/')
    const exchange = { request, response, seen, url, body: () => read(request, seen) }
    try {
      await this.#siteOf(seen.host.toLowerCase().replace(/:\d+$/, ''))(exchange)
    } catch (error) {
      // Nobody is there any more to be told.
      if (!response.headersSent && !(request as IncomingMessage).destroyed) send(response, 500, String(error))
      else response.destroy()
    }
  }

  #note(request: Request): SeenRequest {
    const socket = request.socket as TLSSocket
    const { headers } = request
    return this.#journal.add({
      kind: 'http',
      isTls: socket.encrypted,
      sni: sniOf(socket),
      version: request.httpVersion,
      address: socket.localAddress?.replace('::ffff:', '') ?? '',
      port: socket.localPort ?? 0,
      method: request.method ?? '',
      host: String(headers[':authority'] ?? headers.host ?? ''),
      path: request.url ?? '',
      rawHeaders: [...request.rawHeaders],
      body: '',
      bodyBytes: 0,
      bodySha256: '',
      isComplete: false,
    })
  }

  #upgrade(request: IncomingMessage, socket: Socket, head: Buffer): void {
    const seen = this.#note(request)
    this.#sockets.handleUpgrade(request, socket, head, (open) => {
      open.on('error', () => undefined)
      open.send(JSON.stringify({ method: seen.method, path: seen.path, host: seen.host, headers: pairs(seen) }))
      open.on('message', (data: Buffer, isBinary) => {
        seen.body = (seen.body + data.toString('latin1')).slice(0, journalBytesMax)
        open.send(data, { binary: isBinary })
      })
    })
  }
}

export function send(
  response: Response,
  status: number,
  body: string | Buffer,
  headers: Record<string, string> = {},
): void {
  const bytes = Buffer.from(body as string)
  const writer = response as ServerResponse
  writer.writeHead(status, { 'content-type': 'text/plain', 'content-length': bytes.length, ...headers })
  writer.end(bytes)
}

/** The fields of a request that are no pseudo-fields, by name in lower case. */
export function pairs({ rawHeaders }: SeenRequest): Record<string, string> {
  const found: Record<string, string> = {}
  for (let at = 0; at < rawHeaders.length; at += 2)
    found[rawHeaders[at]?.toLowerCase() ?? ''] = rawHeaders[at + 1] ?? ''
  return found
}

/** User and password of Basic credentials. */
export function basicOf(seen: SeenRequest): { user: string; password: string } {
  const [, coded = ''] = /^Basic (.+)$/i.exec(pairs(seen)['authorization'] ?? '') ?? []
  const [user = '', ...password] = Buffer.from(coded, 'base64').toString().split(':')
  return { user, password: password.join(':') }
}

async function read(request: Request, seen: SeenRequest): Promise<Buffer> {
  const hash = createHash('sha256')
  const kept: Buffer[] = []
  for await (const chunk of request as AsyncIterable<Buffer>) {
    hash.update(chunk)
    if (seen.bodyBytes < bytesKept) kept.push(chunk)
    if (seen.body.length < journalBytesMax) seen.body += chunk.toString('latin1').slice(0, journalBytesMax)
    seen.bodyBytes += chunk.length
  }
  seen.bodySha256 = hash.digest('hex')
  seen.isComplete = true
  return Buffer.concat(kept)
}

function sniOf(socket: TLSSocket): string {
  return socket.servername || ''
}
