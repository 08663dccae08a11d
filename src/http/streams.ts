import { setMaxListeners } from 'node:events'

export type StreamKind = 'events' | 'exec' | 'pty'

/** Connections that last: event streams and WebSockets. They end when the server drains, so that clients reconnect elsewhere. */
export class Streams {
  readonly #drain = new AbortController()
  readonly #open: Record<StreamKind, number> = { events: 0, exec: 0, pty: 0 }

  constructor() {
    setMaxListeners(0, this.#drain.signal)
  }

  /** Aborts when the server drains. */
  get draining(): AbortSignal {
    return this.#drain.signal
  }

  /** Counts a stream until the returned function is called. */
  open(kind: StreamKind): () => void {
    this.#open[kind]++
    let isOpen = true
    return () => {
      if (isOpen) this.#open[kind]--
      isOpen = false
    }
  }

  count(kind: StreamKind): number {
    return this.#open[kind]
  }

  drain(): void {
    this.#drain.abort()
  }
}
