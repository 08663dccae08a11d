import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerOptions, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { FairConnections } from './fair-connections.ts'
import type { Log } from './log.ts'

interface FairListenerOptions {
  http: ServerOptions
  connectionsMax: number
  /** The owner of a peer address. All unknown addresses together count as one owner. */
  ownerAt: (peerAddress: string) => string | undefined
  /** `owner`: that of the connection when it was made. Its address may have another owner since. */
  handle: (request: IncomingMessage, response: ServerResponse, owner: string | undefined) => Promise<void>
  log: Log
}

/** Serves hostile HTTP clients: the number of connections is bounded, and shared fairly between their owners. */
export class FairListener {
  readonly #server: Server
  readonly #handling = new Set<Promise<void>>()
  readonly #owners = new WeakMap<Socket, string>()

  constructor({ http, connectionsMax, ownerAt, handle, log }: FairListenerOptions) {
    const serve = (request: IncomingMessage, response: ServerResponse) => {
      const handled = handle(request, response, this.#owners.get(request.socket))
        .catch((error: unknown) => {
          log.error({ err: error }, 'a request failed')
          response.destroy()
        })
        .finally(() => this.#handling.delete(handled))
      this.#handling.add(handled)
    }
    this.#server = createServer(http, serve)
    // Otherwise Node answers an unknown `Expect` by itself, past all bounds.
    this.#server.on('checkExpectation', serve)
    const connections = new FairConnections(connectionsMax)
    this.#server.on('connection', (socket: Socket) => {
      const owner = ownerAt(socket.remoteAddress ?? '')
      if (connections.admit(owner ?? '', socket) && owner !== undefined) this.#owners.set(socket, owner)
    })
  }

  /** Returns the port in use, for `port: 0`. */
  async listen({ host, port }: { host: string; port: number }): Promise<number> {
    this.#server.listen(port, host)
    await once(this.#server, 'listening')
    return (this.#server.address() as AddressInfo).port
  }

  /** Stops listening, ends all connections, and resolves when no request is handled any more. */
  async close(): Promise<void> {
    const closed = once(this.#server, 'close')
    this.#server.close()
    this.#server.closeAllConnections()
    await closed
    await Promise.all(this.#handling)
  }
}
