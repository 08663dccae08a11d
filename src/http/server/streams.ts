import { setMaxListeners } from 'node:events'
import { ServiceError } from '../../errors.ts'

export type StreamKind = 'events' | 'exec' | 'pty' | 'export'

/** So many may be open that have the same key. */
export interface StreamCap {
  /** What has the key, for the message: `this token`. */
  of: string
  key: string
  max: number
}

const names: Record<StreamKind, string> = {
  events: 'event streams',
  exec: 'WebSockets',
  pty: 'WebSockets',
  export: 'exports',
}

/** After which a place may be free: clients come and go. */
const retryAfterSeconds = 5

/**
 * Connections that last: event streams, WebSockets and exports. They take memory while they last, so that so many may be open.
 * Streams and WebSockets end when the server drains, so that clients reconnect elsewhere.
 */
export class Streams {
  readonly #drain = new AbortController()
  readonly #open: Record<StreamKind, number> = { events: 0, exec: 0, pty: 0, export: 0 }
  readonly #openByKey = new Map<string, number>()

  constructor() {
    setMaxListeners(0, this.#drain.signal)
  }

  /** Aborts when the server drains. */
  get draining(): AbortSignal {
    return this.#drain.signal
  }

  /** Counts a stream until the returned function is called. Throws `rate_limited` for the first of the caps that is reached. */
  open(kind: StreamKind, caps: readonly StreamCap[]): () => void {
    for (const { of, key, max } of caps) {
      if ((this.#openByKey.get(key) ?? 0) < max) continue
      const details = { limit: max, retryAfterSeconds }
      throw new ServiceError('rate_limited', `${of} has ${max} ${names[kind]} open already`, { details })
    }
    this.#count(kind, caps, 1)
    let isOpen = true
    return () => {
      if (isOpen) this.#count(kind, caps, -1)
      isOpen = false
    }
  }

  count(kind: StreamKind): number {
    return this.#open[kind]
  }

  drain(): void {
    this.#drain.abort()
  }

  #count(kind: StreamKind, caps: readonly StreamCap[], step: number): void {
    this.#open[kind] += step
    for (const { key } of caps) {
      const open = (this.#openByKey.get(key) ?? 0) + step
      if (open > 0) this.#openByKey.set(key, open)
      else this.#openByKey.delete(key)
    }
  }
}
