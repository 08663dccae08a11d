import type { AtollServer } from '../server.ts'
import type { Box, Saving } from './sandbox.ts'
import { Windows } from './intervals.ts'

/** All clients share it. */
export class World {
  readonly server: AtollServer
  readonly boxes: Box[] = []
  readonly savings: Saving[] = []
  /** Every sandbox that ever was. */
  readonly ids = new Set<string>()
  /** Stretches of time in which the server is away, or on its way out. */
  readonly down = new Windows()
  readonly violations: string[] = []
  readonly counts = new Map<string, number>()
  /** Of the server, after it was away. */
  slowestStartMs = 0
  readonly #over = new AbortController()
  #numbers = 0

  constructor(server: AtollServer) {
    this.server = server
  }

  /** Aborts when time is up or a rule was broken. */
  get over(): AbortSignal {
    return this.#over.signal
  }

  end(): void {
    this.#over.abort()
  }

  /** One that was not there before. */
  number(): number {
    this.#numbers += 1
    return this.#numbers
  }

  /** The server's own word on what happened is worth more than a guess, so all stops here. */
  violated(text: string, box?: Box): void {
    const lines = this.server.output.split('\n').filter((line) => box !== undefined && line.includes(box.id))
    const log = lines.slice(-12).join('\n')
    const at = new Date().toISOString().slice(11, 23)
    this.violations.push([`${at} ${text}`, ...(box === undefined ? [] : [box.trace, log])].join('\n'))
    this.end()
  }

  count(what: string): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + 1)
  }
}
