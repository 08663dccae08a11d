import { connect, createServer, type Server, type Socket } from 'node:net'
import { freePort, listen } from '../support/listen.ts'

/** A way to a server of this machine that can be cut: its connections end at once, and none is taken until it is mended. */
export class Cuttable implements AsyncDisposable {
  readonly port: number
  readonly #target: number
  readonly #sockets = new Set<Socket>()
  #server: Server

  private constructor(target: number, server: Server, port: number) {
    this.#target = target
    this.#server = server
    this.port = port
    server.on('connection', (socket) => this.#relay(socket))
  }

  static async to(target: number): Promise<Cuttable> {
    const server = createServer()
    // It is left while the way is cut, and nobody else may get it then.
    return new Cuttable(target, server, await listen(server, await freePort()))
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`
  }

  cut(): void {
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
  }

  async mend(): Promise<void> {
    this.#server = createServer((socket) => this.#relay(socket))
    await listen(this.#server, this.port)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut()
  }

  #relay(near: Socket): void {
    const far = connect(this.#target, '127.0.0.1')
    near.pipe(far).pipe(near)
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      this.#sockets.add(socket)
      socket.on('error', () => other.destroy())
      socket.on('close', () => {
        this.#sockets.delete(socket)
        other.destroy()
      })
    }
  }
}
