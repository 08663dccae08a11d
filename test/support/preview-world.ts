import { once } from 'node:events'
import { createServer, type IncomingMessage, type RequestListener } from 'node:http'
import type { Duplex } from 'node:stream'
import { after, before } from 'node:test'
import { WebSocket, WebSocketServer } from 'ws'
import { exchange, type ApiAnswer, type Exchange } from './api-client.ts'
import { listen } from './listen.ts'
import { makeWorld, previewHost, type WorldOptions } from './world.ts'

/** The host name of a sandbox's port. */
export function hostOf(sandboxId: string, port: number | string): string {
  return `${sandboxId}-p${port}.${previewHost}`
}

type Answers = Record<string, RequestListener>
type PreviewWorld = Awaited<ReturnType<typeof makePreviewWorld>>

/** A preview world for all tests of a file: made before the first test, closed after the last. */
export function usePreview(answers?: Answers, options?: WorldOptions): PreviewWorld {
  const preview = {} as PreviewWorld
  before(async () => void Object.assign(preview, await makePreviewWorld(answers, options)))
  after(() => preview.close())
  return preview
}

/**
 * A sandbox with a server inside: the guest dials the loopback that it shares with the test. The server answers by path, echoes
 * WebSockets at `/socket`, and greets at every other path.
 */
async function makePreviewWorld(given: Answers = {}, options: WorldOptions = {}) {
  const world = await makeWorld({ publicUrl: 'http://api.test', ...options })
  const id = await world.sandbox()
  const answers: Answers = { '/headers': echoHead, ...given }
  const seen: IncomingMessage[] = []
  const upgraded = new Set<Duplex>()
  const inside = createServer((request, response) => {
    seen.push(request)
    const [path = ''] = (request.url ?? '').split('?')
    const answer = answers[path]
    if (answer) answer(request, response)
    else response.end(`hello from ${request.url}`)
  })
  inside.on('upgrade', (_request, socket) => upgraded.add(socket))
  const sockets = new WebSocketServer({ server: inside, path: '/socket' })
  sockets.on('connection', (socket) =>
    socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary })),
  )
  const port = await listen(inside)
  const ownHost = hostOf(id, port)

  function webSocket(path = '/socket', host = ownHost): WebSocket {
    const socket = new WebSocket(world.origin.replace('http', 'ws') + path, { headers: { host } })
    // A refusal is also an event `unexpected-response` or `close`.
    socket.on('error', () => {})
    return socket
  }

  return {
    world,
    id,
    inside,
    port,
    /** Of that port. */
    host: ownHost,
    answers,
    /** The requests that came in. */
    seen,
    webSocket,

    async ask(path: string, { headers = {}, ...rest }: Exchange = {}, host = ownHost): Promise<ApiAnswer> {
      return await exchange(world.origin + path, { ...rest, headers: { host, ...headers } })
    },

    /** The status that answers a WebSocket which is not opened. */
    async refusedWebSocket(path?: string, host?: string): Promise<number | undefined> {
      const socket = webSocket(path, host)
      const [, response] = (await once(socket, 'unexpected-response')) as [unknown, IncomingMessage]
      socket.terminate()
      return response.statusCode
    },

    /** Runs `work` with the connections into sandboxes that are made meanwhile, as the driver hands them out. */
    async watchingDials(work: (dialled: Duplex[]) => Promise<void>): Promise<void> {
      const { machines } = world
      const connect = machines.connect.bind(machines)
      const dialled: Duplex[] = []
      machines.connect = async (sandboxId, to) => {
        const connection = await connect(sandboxId, to)
        if (connection !== undefined) dialled.push(connection)
        return connection
      }
      try {
        await work(dialled)
      } finally {
        machines.connect = connect
      }
    },

    async close(): Promise<void> {
      await world.close()
      inside.closeAllConnections()
      inside.close()
      for (const socket of upgraded) socket.destroy()
    },
  }
}

/** Answers with the head of the request, and with headers of one connection alone. */
function echoHead(request: IncomingMessage, response: Parameters<RequestListener>[1]): void {
  response.setHeader('Set-Cookie', ['a=1', 'b=2'])
  response.setHeader('Connection', 'X-Private')
  response.setHeader('X-Private', 'mine')
  response.setHeader('Proxy-Authenticate', 'Basic')
  const { headers, rawHeaders, url, method } = request
  response.end(JSON.stringify({ headers, raw: rawHeaders, url, method }))
}
