import { setMaxListeners } from 'node:events'
import { ServiceError } from '../../errors.ts'
import { sha256 } from '../../lib/secret.ts'
import type { Call } from './route.ts'

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

type Opened = Pick<Call, 'limits' | 'orgId' | 'request'>

/** Narrow ones first, so that a client is told what it can do something about. */
export function eventStreamCaps({ limits, orgId, request }: Opened, sessionId: string): StreamCap[] {
  const { caller } = request
  // An API key has no cap of its own: its organisation has.
  const token = caller?.sessionId === undefined ? undefined : sha256(caller.apiKey)
  return [
    ...(token === undefined
      ? []
      : [{ of: 'this token', key: `events of token ${token}`, max: limits.eventStreamsPerTokenMax }]),
    // Whose session it is turns out later: whoever asks for that of others takes no place of theirs.
    { of: 'the session', key: `events of ${orgId} ${sessionId}`, max: limits.eventStreamsPerSessionMax },
    { of: 'the organisation', key: `events of ${orgId}`, max: limits.eventStreamsPerOrganisationMax },
    { of: 'the server', key: 'events', max: limits.eventStreamsMax },
  ]
}

/** Of WebSockets to commands and terminals together. */
export function socketCaps({ limits, orgId }: Opened, sandboxId: string): StreamCap[] {
  return [
    // Whose sandbox it is turns out later: whoever asks for that of others takes no place of theirs.
    { of: 'the sandbox', key: `sockets of ${orgId} ${sandboxId}`, max: limits.socketsPerSandboxMax },
    { of: 'the organisation', key: `sockets of ${orgId}`, max: limits.socketsPerOrganisationMax },
  ]
}

export function exportCaps({ limits, orgId }: Opened): StreamCap[] {
  return [{ of: 'the organisation', key: `exports of ${orgId}`, max: limits.exportsPerOrganisationMax }]
}
