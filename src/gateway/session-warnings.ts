import type { Log } from '../lib/log.ts'

/** Writes a warning into the event stream of a session. */
export type WarnSession = (sessionId: string, code: string, message: string) => Promise<void>

/** Sessions are hostile: each has few warnings, however many fields it invents. */
const warningsPerSessionMax = 16
const sessionsMax = 10_000

/** Warns each session once of each thing that the gateway keeps out, until the server ends. */
export class SessionWarnings {
  readonly #warn: WarnSession
  readonly #log: Log
  /** What each session was warned of; the session that was warned last comes last. */
  readonly #warned = new Map<string, Set<string>>()
  readonly #pending = new Set<Promise<void>>()

  constructor(warn: WarnSession, log: Log) {
    this.#warn = warn
    this.#log = log
  }

  /** Warns in the background, and logs a failure. `about` is the name of the thing. */
  warn(sessionId: string, about: string, code: string, message: string): void {
    const warned = this.#warned.get(sessionId) ?? new Set()
    if (warned.has(about) || warned.size >= warningsPerSessionMax) return
    warned.add(about)
    this.#warned.delete(sessionId)
    this.#warned.set(sessionId, warned)
    const [oldest] = this.#warned.keys()
    if (this.#warned.size > sessionsMax) this.#warned.delete(oldest!)
    const told = this.#warn(sessionId, code, message)
      .catch((error: unknown) => this.#log.error({ err: error, sessionId, code }, 'a session was not warned'))
      .finally(() => this.#pending.delete(told))
    this.#pending.add(told)
  }

  /** Resolves when no warning is being written. */
  async told(): Promise<void> {
    await Promise.all(this.#pending)
  }
}
