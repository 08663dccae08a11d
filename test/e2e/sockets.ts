import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { WebSocket } from 'ws'
import type { AtollServer } from './server.ts'

/** A terminal of a sandbox, as a browser would hold it: what was typed and what the screen has shown so far. */
export class Terminal {
  readonly #socket: WebSocket
  #screen = ''

  private constructor(socket: WebSocket) {
    this.#socket = socket
    socket.on('message', (data: Buffer) => (this.#screen += data.toString()))
  }

  static async open(server: AtollServer, sandboxId: string, ptyId: string): Promise<Terminal> {
    const path = `/api/sandboxes/${sandboxId}/pty/${ptyId}?api_key=${server.key}`
    const socket = new WebSocket(`ws://127.0.0.1:${server.port}${path}`)
    const terminal = new Terminal(socket)
    await once(socket, 'open')
    return terminal
  }

  get screen(): string {
    return this.#screen
  }

  get isOpen(): boolean {
    return this.#socket.readyState === WebSocket.OPEN
  }

  type(text: string): void {
    this.#socket.send(Buffer.from(text))
  }

  /** Waits for a text on the screen; the test's own time limit bounds it. */
  async shows(text: string): Promise<void> {
    while (!this.#screen.includes(text)) {
      if (!this.isOpen) throw new Error(`the terminal closed before it showed ${text}:\n${this.#screen}`)
      await sleep(20)
    }
  }

  close(): void {
    this.#socket.close()
  }
}
