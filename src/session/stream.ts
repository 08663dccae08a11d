import { ReplayPages } from './replay.ts'
import type { StreamEvent } from './session.ts'
import { SessionTail, type TailDeps } from './tail.ts'

interface Followed {
  tail: SessionTail
  followers: number
}

/** The event streams of all sessions: one tail for each that somebody follows, one set of replayed pages for all. */
export class SessionStreams {
  readonly #deps: TailDeps
  readonly #pages: ReplayPages
  readonly #followed = new Map<string, Followed>()

  constructor(deps: TailDeps) {
    this.#deps = deps
    this.#pages = new ReplayPages(deps.store)
  }

  /**
   * Yields every event after a number once, in order: stored ones, then live ones. Ends when the session has ended and all was
   * yielded, or when `signal` aborts. Followers get the same objects. Holds one page, or what the tail keeps.
   */
  async *follow(sessionId: string, after: number, signal: AbortSignal): AsyncGenerator<StreamEvent> {
    const followed = this.#enter(sessionId)
    const { tail } = followed
    try {
      await tail.opened
      let sequence = after
      while (!signal.aborted) {
        const newest = tail.after(sequence)
        const events = newest ?? (await this.#pages.after(sessionId, sequence, tail.last))
        for (const event of events) {
          if (signal.aborted) return
          sequence = event.sequence
          yield event
        }
        if (newest === undefined) await this.#deps.pages.next()
        else if (events.length > 0) continue
        else if (tail.hasEnded) return
        else await tail.changed(signal)
      }
    } finally {
      this.#leave(sessionId, followed)
    }
  }

  #enter(sessionId: string): Followed {
    const known = this.#followed.get(sessionId)
    const followed = known && !known.tail.hasFailed ? known : this.#open(sessionId)
    followed.followers += 1
    return followed
  }

  #open(sessionId: string): Followed {
    const followed = { tail: new SessionTail(this.#deps, sessionId), followers: 0 }
    this.#followed.set(sessionId, followed)
    return followed
  }

  #leave(sessionId: string, followed: Followed): void {
    followed.followers -= 1
    if (followed.followers > 0) return
    followed.tail.close()
    if (this.#followed.get(sessionId) === followed) this.#followed.delete(sessionId)
  }
}
