import { Agent, type ClientRequest, get, type IncomingMessage } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import type { AtollServer } from './server.ts'

/** A connection that broke is made again after a time up to this. */
const retryMs = 500
const dropMs = 500

/**
 * Clients of one session's event stream, on raw HTTP. They count rather than keep: each checks that the next number follows the
 * last one it had, over all of its connections, and that the event is as long as the others had it.
 */
export class Crowd {
  readonly server: AtollServer
  readonly sessionId: string
  readonly agent = new Agent({ maxSockets: Number.POSITIVE_INFINITY })
  readonly clients: CrowdClient[] = []
  /** By number: bytes of its data, and when clients had it (Unix milliseconds). */
  readonly seen = new Map<number, { byteLength: number; times: number[] }>()

  /** What the first client to fail failed with. */
  failure: unknown
  #dropping: NodeJS.Timeout | undefined

  constructor(server: AtollServer, sessionId: string) {
    this.server = server
    this.sessionId = sessionId
  }

  add(count: number): CrowdClient[] {
    const added = Array.from({ length: count }, () => new CrowdClient(this))
    this.clients.push(...added)
    return added
  }

  /** Waits until each of the clients has had so many `turn_complete`. */
  async turns(clients: readonly CrowdClient[], count: number): Promise<void> {
    while (clients.some((client) => client.turns < count)) {
      if (this.failure !== undefined) throw this.failure
      await sleep(10)
    }
  }

  /** Breaks connections of these clients, from now on, about every third second each. */
  dropAtRandom(clients: readonly CrowdClient[]): void {
    const dropSome = () => {
      for (const client of clients) if (Math.random() < dropMs / 3000) client.drop()
    }
    this.#dropping = setInterval(dropSome, dropMs)
  }

  saw(sequence: number, byteLength: number): void {
    const seen = this.seen.get(sequence) ?? { byteLength, times: [] }
    if (seen.byteLength !== byteLength) {
      throw new Error(`event ${sequence} has ${byteLength} bytes for one client and ${seen.byteLength} for another`)
    }
    seen.times.push(Date.now())
    this.seen.set(sequence, seen)
  }

  [Symbol.dispose](): void {
    clearInterval(this.#dropping)
    for (const client of this.clients) client.leave()
    this.agent.destroy()
  }
}

export class CrowdClient {
  /** The number of the last whole event; `Last-Event-ID` of the next connection. */
  last = 0
  /** `turn_complete` events among those it had. */
  turns = 0
  connections = 0
  /** The server has ended the stream in order, after the end of the session. */
  hasEnded = false
  readonly #crowd: Crowd
  #request: ClientRequest | undefined
  #response: IncomingMessage | undefined
  #isLeaving = false

  constructor(crowd: Crowd) {
    this.#crowd = crowd
  }

  /** Follows the stream over all breaks until it ends. What goes wrong is told by `Crowd.turns`. */
  async follow(): Promise<void> {
    while (!this.hasEnded && !this.#isLeaving) {
      try {
        const response = await this.#connect()
        if (response !== undefined) await this.#read(response)
      } catch (error) {
        if (!isBroken(error)) {
          this.#crowd.failure ??= error
          return
        }
        await sleep(Math.random() * retryMs)
      }
    }
  }

  /** Connects and takes nothing. `follow` later reads what there is. */
  async stare(): Promise<void> {
    this.#response = await this.#connect()
  }

  /** What `stare` left unread; returns when the connection is over, with the error that it ended with. */
  async takeRest(): Promise<unknown> {
    if (!this.#response) throw new Error('it has no connection')
    try {
      await this.#read(this.#response)
      return undefined
    } catch (error) {
      return error
    }
  }

  /** Breaks the connection; `follow` makes another. */
  drop(): void {
    this.#request?.destroy()
  }

  leave(): void {
    this.#isLeaving = true
    this.drop()
  }

  /** Undefined: the session has ended and nothing is missing. */
  async #connect(): Promise<IncomingMessage | undefined> {
    const { server, sessionId, agent } = this.#crowd
    this.connections += 1
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>()
    const path = `/v1/sessions/${sessionId}/events?api_key=${server.key}`
    const headers = this.last === 0 ? {} : { 'Last-Event-ID': String(this.last) }
    this.#request = get({ host: '127.0.0.1', port: server.port, path, headers, agent }, resolve).on('error', reject)
    const response = await promise
    if (response.statusCode === 200) return response
    response.resume()
    this.hasEnded = response.statusCode === 204
    if (this.hasEnded) return undefined
    throw new Error(`the stream answered ${response.statusCode}`)
  }

  async #read(response: IncomingMessage): Promise<void> {
    const lines = new EventLines(({ sequence, type, byteLength }) => {
      if (sequence !== this.last + 1) throw new Error(`event ${sequence} came after event ${this.last}`)
      this.last = sequence
      if (type === 'turn_complete') this.turns += 1
      this.#crowd.saw(sequence, byteLength)
    })
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    response.on('data', (chunk: Buffer) => {
      try {
        lines.push(chunk)
      } catch (error) {
        reject(error)
        response.destroy()
      }
    })
    response.once('end', resolve).once('error', reject).once('close', resolve)
    await promise
    this.hasEnded = response.complete
  }
}

function isBroken(error: unknown): boolean {
  return ['ECONNRESET', 'ECONNREFUSED', 'EPIPE'].includes((error as NodeJS.ErrnoException).code ?? '')
}

interface SeenEvent {
  sequence: number
  type: string
  byteLength: number
}

/** As much of a line as tells what it is: the longest is `data: {"type":"tool_use_summary"`. */
const startLength = 40

/** Reads server-sent events without keeping their data. An event counts when its empty line has come. */
class EventLines {
  readonly #onEvent: (event: SeenEvent) => void
  /** Of the line at hand. */
  #start = ''
  #length = 0
  readonly #event: SeenEvent = { sequence: 0, type: '', byteLength: 0 }

  constructor(onEvent: (event: SeenEvent) => void) {
    this.#onEvent = onEvent
  }

  push(chunk: Buffer): void {
    for (let from = 0; from < chunk.length;) {
      const newline = chunk.indexOf(10, from)
      const to = newline === -1 ? chunk.length : newline
      const missing = startLength - this.#start.length
      if (missing > 0) this.#start += chunk.toString('latin1', from, Math.min(to, from + missing))
      this.#length += to - from
      if (newline === -1) return
      this.#endLine()
      from = newline + 1
    }
  }

  #endLine(): void {
    const event = this.#event
    if (this.#length === 0 && event.type !== '') {
      this.#onEvent(event)
      event.type = ''
    } else if (this.#start.startsWith('id: ')) {
      event.sequence = Number(this.#start.slice(4))
    } else if (this.#start.startsWith('data: ')) {
      event.type = /^data: \{"type":"(\w+)"/.exec(this.#start)?.[1] ?? 'unknown'
      event.byteLength = this.#length - 'data: '.length
    }
    this.#start = ''
    this.#length = 0
  }
}
