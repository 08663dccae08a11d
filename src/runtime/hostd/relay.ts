import { connect, type Socket } from 'node:net'
import { getSystemErrorName } from 'node:util'
import type { HostdRequest } from '../../protocol/hostd.ts'
import { encode } from './frame.ts'

const answerBytes = 4
const answerTimeoutMs = 5_000
/** The connections that one command in a sandbox takes, one after the other. */
const sparesMax = 4

/** hostd does not answer, so the state of the guest is unknown. A later attempt may succeed. */
export class RelayUnavailable extends Error {
  constructor() {
    super('hostd does not answer')
    this.name = 'RelayUnavailable'
  }
}

/**
 * The connections to hostd's own socket, each for one request (`hostd/src/relay.rs`). Some are opened in
 * advance, so that hostd has a thread ready for the next request.
 */
export class Relay {
  readonly #path: string
  readonly #spares = new Set<Socket>()

  constructor(path: string) {
    this.#path = path
  }

  /**
   * Opens a connection to a guest's socket. Throws an error with the `code` of connect(2), `ENOBUFS` where there are too many
   * connections, or {@link RelayUnavailable}.
   */
  async connect(guest: string): Promise<Socket> {
    const { socket, error } = await this.#ask('connect-guest', guest)
    if (error === 0) return socket
    socket.destroy()
    const code = getSystemErrorName(-error)
    throw Object.assign(new Error(`connect ${code} ${guest}`), { code })
  }

  /** Ends all connections to a guest's socket; some may be left after two seconds. Throws {@link RelayUnavailable}. */
  async cut(guest: string): Promise<void> {
    const { socket } = await this.#ask('cut-guest', guest)
    socket.destroy()
  }

  close(): void {
    for (const spare of this.#spares) spare.destroy()
  }

  async #ask(op: 'connect-guest' | 'cut-guest', path: string): Promise<{ socket: Socket; error: number }> {
    const socket = this.#take()
    socket.write(encode({ op, path } satisfies HostdRequest))
    const late = setTimeout(() => socket.destroy(), answerTimeoutMs)
    const error = await readAnswer(socket)
    clearTimeout(late)
    if (error === undefined) throw new RelayUnavailable()
    // After the caller has used the connection.
    setImmediate(() => this.#prepare())
    return { socket, error }
  }

  #take(): Socket {
    const [spare] = this.#spares
    if (spare === undefined) return this.#open()
    this.#spares.delete(spare)
    return spare.ref()
  }

  #prepare(): void {
    while (this.#spares.size < sparesMax) {
      const spare = this.#open().unref()
      this.#spares.add(spare)
      spare.once('close', () => this.#spares.delete(spare))
    }
  }

  #open(): Socket {
    const socket = connect({ path: this.#path })
    // An error of a connection must never end the server; its owner sees the close that follows.
    socket.on('error', () => undefined)
    return socket
  }
}

/** An error number; `undefined` when the connection ends before it. */
async function readAnswer(socket: Socket): Promise<number | undefined> {
  if (socket.destroyed) return undefined
  const { promise, resolve } = Promise.withResolvers<number | undefined>()
  const onReadable = () => {
    const answer = socket.read(answerBytes) as Buffer | null
    if (answer?.length === answerBytes) resolve(answer.readInt32BE())
  }
  const onClose = () => resolve(undefined)
  socket.on('readable', onReadable).once('close', onClose)
  const answer = await promise
  socket.off('readable', onReadable).off('close', onClose)
  return answer
}
