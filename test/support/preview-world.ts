import { once } from 'node:events'
import { createServer } from 'node:http'
import type { IncomingMessage, RequestListener, Server } from 'node:http'
import type { Duplex } from 'node:stream'
import { WebSocket, WebSocketServer } from 'ws'
import { exchange } from './api-client.ts'
import type { ApiAnswer, Exchange } from './api-client.ts'
import { listen } from './listen.ts'
import { makeWorld, previewHost } from './world.ts'
import type { World, WorldOptions } from './world.ts'

/** The host name of a sandbox's port. */
export function hostOf(sandboxId: string, port: number | string): string {
  return `${sandboxId}-p${port}.${previewHost}`
}

/** A sandbox with a server inside: the guest dials the loopback that it shares with the test. */
export class PreviewWorld implements AsyncDisposable {
  readonly world: World
  readonly id: string
  /** The server inside: `answers` by path, WebSockets that echo at `/socket`, and a greeting at every other path. */
  readonly inside: Server
  readonly port: number
  /** Of that port. */
  readonly host: string
  readonly answers: Record<string, RequestListener>
  /** The requests that came in. */
  readonly seen: IncomingMessage[]
  readonly #upgraded: Set<Duplex>

  private constructor(parts: Pick<PreviewWorld, 'world' | 'id' | 'inside' | 'port' | 'answers' | 'seen'>) {
    this.world = parts.world
    this.id = parts.id
    this.inside = parts.inside
    this.port = parts.port
    this.host = hostOf(parts.id, parts.port)
    this.answers = parts.answers
    this.seen = parts.seen
    this.#upgraded = new Set()
    this.inside.on('upgrade', (_request, socket) => this.#upgraded.add(socket))
  }

  static async start(given: Record<string, RequestListener> = {}, options: WorldOptions = {}): Promise<PreviewWorld> {
    const world = await makeWorld({ publicUrl: 'http://api.test', ...options })
    const id = await world.sandbox()
    const answers = { '/headers': echoHead, ...given }
    const seen: IncomingMessage[] = []
    const inside = createServer((request, response) => {
      seen.push(request)
      const [path = ''] = (request.url ?? '').split('?')
      const answer = (answers as Record<string, RequestListener>)[path]
      if (answer) answer(request, response)
      else response.end(`hello from ${request.url}`)
    })
    const sockets = new WebSocketServer({ server: inside, path: '/socket' })
    sockets.on('connection', (socket) =>
      socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary })),
    )
    return new PreviewWorld({ world, id, inside, port: await listen(inside), answers, seen })
  }

  async ask(path: string, { headers = {}, ...rest }: Exchange = {}, host = this.host): Promise<ApiAnswer> {
    return await exchange(this.world.origin + path, { ...rest, headers: { host, ...headers } })
  }

  webSocket(path = '/socket', host = this.host): WebSocket {
    const socket = new WebSocket(this.world.origin.replace('http', 'ws') + path, { headers: { host } })
    // Whoever waits for a refusal is told by `unexpected-response` and `close`.
    socket.on('error', () => {})
    return socket
  }

  /** The status that answers a WebSocket which is not opened. */
  async refusedWebSocket(path = '/socket', host = this.host): Promise<number | undefined> {
    const socket = this.webSocket(path, host)
    const [, response] = (await once(socket, 'unexpected-response')) as [unknown, IncomingMessage]
    socket.terminate()
    return response.statusCode
  }

  /** Runs `work` with the connections into sandboxes that are made meanwhile, as the driver hands them out. */
  async watchingDials(work: (dialled: Duplex[]) => Promise<void>): Promise<void> {
    const { machines } = this.world
    const dial = machines.dial.bind(machines)
    const dialled: Duplex[] = []
    machines.dial = async (sandboxId) => {
      const connection = await dial(sandboxId)
      dialled.push(connection)
      return connection
    }
    try {
      await work(dialled)
    } finally {
      machines.dial = dial
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.world.close()
    this.inside.closeAllConnections()
    this.inside.close()
    for (const socket of this.#upgraded) socket.destroy()
  }
}

/** Says what it was asked, and has headers that are for one connection alone. */
function echoHead(request: IncomingMessage, response: Parameters<RequestListener>[1]): void {
  response.setHeader('Set-Cookie', ['a=1', 'b=2'])
  response.setHeader('Connection', 'X-Private')
  response.setHeader('X-Private', 'mine')
  response.setHeader('Proxy-Authenticate', 'Basic')
  const { headers, rawHeaders, url, method } = request
  response.end(JSON.stringify({ headers, raw: rawHeaders, url, method }))
}
