import { connect } from './connect.ts'
import type { Atoll } from './atoll.ts'
import { AtollError, ConnectionError, RateLimitedError, UnavailableError } from './errors.ts'
import { pause, pauseMs } from './retry.ts'
import { withResolvers, type Messages, type SocketEnd } from './socket.ts'

/** How often in a row a connection that broke is made again. */
const reconnectsMax = 8

export interface AttachOptions {
  /** Bytes of output that are known already. Default 0: all that the sandbox still has. */
  offset?: number | undefined
  /** Ends the connection; what runs in the sandbox runs on. */
  signal?: AbortSignal | undefined
  /** False: a connection that breaks is an error, since input that was on its way is lost with it. Default true. */
  reconnects?: boolean | undefined
  /** Called when a connection is made, the first one and those after a break. */
  onOpen?: (() => void) | undefined
}

/** What a message brought: a piece of output of so many bytes, the end, the offset that kept output has reached, or nothing. */
export type Taken<Item, Exit> = { item: Item; bytes: number } | { exit: Exit } | { reached: number } | undefined

/**
 * Something that runs in a sandbox, whoever is connected. Its output is read once; a connection that breaks is made again where it broke,
 * so no output is lost or repeated.
 */
export abstract class Attached<Item, Exit> implements AsyncIterable<Item> {
  readonly id: string
  /** How it ended, once its output was read to the end. */
  readonly exited: Promise<Exit>
  protected readonly client: Atoll
  protected readonly path: string
  readonly #signal: AbortSignal | undefined
  readonly #reconnects: boolean
  readonly #onOpen: (() => void) | undefined
  readonly #exit = withResolvers<Exit>()
  #connected: Promise<Messages> | undefined
  #offset: number
  #dropped = 0

  constructor(client: Atoll, path: string, { offset = 0, signal, reconnects = true, onOpen }: AttachOptions = {}) {
    this.id = path.slice(path.lastIndexOf('/') + 1)
    this.client = client
    this.path = path
    this.#offset = offset
    this.#signal = signal
    this.#reconnects = reconnects
    this.#onOpen = onOpen
    this.exited = this.#exit.promise
    // The reader gets the failure already.
    this.exited.catch(() => undefined)
    signal?.addEventListener('abort', () => this.detach(), { once: true })
  }

  /** Bytes of output that were read, or missed: where another connection goes on. */
  get offset(): number {
    return this.#offset
  }

  /** Bytes before that which the sandbox no longer had. */
  protected get dropped(): number {
    return this.#dropped
  }

  protected abstract take(message: Uint8Array): Taken<Item, Exit>

  /** The exit, if this end of a connection means that what runs has ended. */
  protected abstract exitOf(end: SocketEnd): { exit: Exit } | undefined

  async *[Symbol.asyncIterator](): AsyncIterator<Item> {
    try {
      for (let failures = 0; ; failures += 1) {
        const messages = await this.#connection()
        for await (const message of messages) {
          failures = 0
          const taken = this.take(message)
          if (taken === undefined) continue
          if ('exit' in taken) return this.#exit.resolve(taken.exit)
          if ('reached' in taken) {
            // The sandbox had dropped something before it was asked.
            const gap = Math.max(0, taken.reached - this.#offset)
            this.#dropped += gap
            this.#offset += gap
            continue
          }
          this.#offset += taken.bytes
          yield taken.item
        }
        this.#connected = undefined
        this.#signal?.throwIfAborted()
        const end = await messages.ended
        const over = this.exitOf(end)
        if (over !== undefined) return this.#exit.resolve(over.exit)
        await this.#beforeReconnection(failures + 1, end)
      }
    } catch (error) {
      this.#exit.reject(error)
      throw error
    } finally {
      this.detach()
    }
  }

  /** Reads the output to its end. */
  async wait(): Promise<Exit> {
    const items = this[Symbol.asyncIterator]()
    while ((await items.next()).done !== true);
    return await this.exited
  }

  /** Ends the connection. What runs in the sandbox runs on. */
  detach(): void {
    const connected = this.#connected
    this.#connected = undefined
    connected?.then((messages) => messages.close()).catch(() => undefined)
  }

  protected async send(message: Uint8Array): Promise<void> {
    const messages = await this.#connection()
    await messages.send(message)
  }

  async #connection(): Promise<Messages> {
    this.#connected ??= this.#connect()
    try {
      return await this.#connected
    } catch (error) {
      this.#connected = undefined
      throw error
    }
  }

  /** A server that restarts refuses for a moment. */
  async #connect(): Promise<Messages> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        const address = this.client.address(this.path, { offset: this.#offset })
        const messages = await connect(address, this.client.credentials)
        this.#onOpen?.()
        return messages
      } catch (error) {
        const isPassing =
          error instanceof ConnectionError || error instanceof UnavailableError || error instanceof RateLimitedError
        if (!isPassing || attempt >= reconnectsMax) throw error
        await pause(pauseMs(error, 'always', attempt) ?? 0, this.#signal)
      }
    }
  }

  async #beforeReconnection(failures: number, { code, reason }: SocketEnd): Promise<void> {
    const error = new ConnectionError(`the connection broke${reason === '' ? '' : ` (${reason})`}`)
    // 1011: the sandbox was stopped or its server failed, and the reason says which.
    if (!this.#reconnects || failures > reconnectsMax || code === 1011)
      throw code === 1011 ? new AtollError(reason === '' ? 'the connection broke' : reason) : error
    await pause(pauseMs(error, 'always', failures) ?? 0, this.#signal)
  }
}
