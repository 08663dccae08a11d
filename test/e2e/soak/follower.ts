import { setTimeout as sleep } from 'node:timers/promises'
import { streamEvents, type StreamedEvent } from '../event-stream.ts'
import type { AtollServer } from '../server.ts'
import type { Deadline } from './intervals.ts'
import type { Random } from './random.ts'

const connectedMsMax = 8000
const pauseMsMax = 500

/**
 * A client that follows one session's stream for as long as it lives, as an `EventSource` does: it comes back with the last
 * number that it has seen whenever the connection breaks, and now and then it leaves by itself.
 */
export class Follower {
  readonly events: StreamedEvent[] = []
  readonly #server: AtollServer
  readonly #sessionId: string
  readonly #random: Random
  readonly #stop = new AbortController()
  readonly #ended: Promise<void>

  constructor(server: AtollServer, sessionId: string, random: Random) {
    this.#server = server
    this.#sessionId = sessionId
    this.#random = random
    this.#ended = this.#follow()
    this.#ended.catch(() => {})
  }

  get lastId(): number {
    return this.events.at(-1)?.id ?? 0
  }

  /** Returns once an event of this number has come. Throws a gap or a repeat that was seen. */
  async reach(id: number, deadline: Deadline): Promise<void> {
    while (this.lastId < id && !deadline.isOver) await Promise.race([sleep(50), this.#ended])
    if (this.lastId < id) throw new Error(`the stream of ${this.#sessionId} stays at ${this.lastId}, not ${id}`)
  }

  /** Throws a gap or a repeat that was seen. */
  async close(): Promise<void> {
    this.#stop.abort()
    await this.#ended
  }

  async #follow(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      await this.#connect()
      await sleep(this.#random.between(0, pauseMsMax))
    }
  }

  async #connect(): Promise<void> {
    const leave = AbortSignal.timeout(this.#random.between(50, connectedMsMax))
    const signal = AbortSignal.any([leave, this.#stop.signal])
    // The first connection asks for everything; so does a client that has seen nothing yet.
    const lastEventId = this.lastId === 0 ? undefined : this.lastId
    const stream = streamEvents(this.#server, this.#sessionId, { lastEventId, signal })
    for (;;) {
      const next = await stream.next().catch(() => undefined)
      if (next === undefined || next.done) return
      if (next.value.id !== this.lastId + 1) {
        throw new Error(`${this.#sessionId}: event ${next.value.id} came after event ${this.lastId}`)
      }
      this.events.push(next.value)
    }
  }
}
