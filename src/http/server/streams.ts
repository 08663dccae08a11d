import { setMaxListeners } from 'node:events'
import { ServiceError } from '../../errors.ts'
import { sha256 } from '../../lib/secret.ts'
import type { HttpLimits } from './config.ts'
import type { Call } from './route.ts'

export const streamKinds = ['events', 'exec', 'pty', 'tunnel', 'export', 'file'] as const
export type StreamKind = (typeof streamKinds)[number]

/** Bounds the open streams with the same key. */
export interface StreamCap {
  /** The owner of the key, for the message: `this token`. */
  of: string
  key: string
  max: number
}

const names: Record<StreamKind, string> = {
  events: 'event streams',
  exec: 'WebSockets',
  pty: 'WebSockets',
  tunnel: 'connections to ports',
  export: 'exports',
  file: 'transfers of files',
}

const retryAfterSeconds = 5

/**
 * Counts and bounds long connections: event streams, WebSockets, exports and transfers of files, which hold memory while they are open. When the server
 * drains, event streams and WebSockets end and their clients reconnect elsewhere.
 */
export class Streams {
  readonly #drain = new AbortController()
  readonly #open: Record<StreamKind, number> = { events: 0, exec: 0, pty: 0, tunnel: 0, export: 0, file: 0 }
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

type Opened = Pick<Call, 'limits' | 'orgId' | 'request' | 'deps'>

/** The narrowest bound first, so that the error names the one that a client can act on. */
export function eventStreamCaps(call: Opened, sessionId: string): StreamCap[] {
  const { limits, orgId, request } = call
  const { caller } = request
  // An API key has no cap of its own: its organisation has.
  const token = caller?.sessionId === undefined ? undefined : sha256(caller.credential)
  return [
    ...(token === undefined
      ? []
      : [{ of: 'this token', key: `events of token ${token}`, max: limits.eventStreamsPerTokenMax }]),
    // The key has `orgId`, since the owner of the session is not checked yet: a stranger must not use up the owner's streams.
    { of: 'the session', key: `events of ${orgId} ${sessionId}`, max: limits.eventStreamsPerSessionMax },
    ...logStreamCaps(call),
  ]
}

function socketsKey(orgId: string): string {
  return `sockets of ${orgId}`
}

/** Bounds streams of the log and of builds together with those of sessions. */
export function logStreamCaps({ limits, orgId, deps }: Omit<Opened, 'request'>): StreamCap[] {
  const { eventStreamsMax } = deps.organisations.limitsOf(orgId)
  return [
    { of: 'the organisation', key: `events of ${orgId}`, max: eventStreamsMax },
    { of: 'the server', key: 'events', max: limits.eventStreamsMax },
  ]
}

/** Of one sandbox, whose guest serves 32. */
const watchesPerSandboxMax = 16

export function watchCaps(call: Opened, sandboxId: string): StreamCap[] {
  const key = `watches of ${call.orgId} ${sandboxId}`
  return [{ of: 'the sandbox', key, max: watchesPerSandboxMax }, ...logStreamCaps(call)]
}

/** Bounds WebSockets to commands and terminals together. */
export function socketCaps({ limits, orgId, deps }: Opened, sandboxId: string): StreamCap[] {
  const { socketsMax } = deps.organisations.limitsOf(orgId)
  return [
    // The key has `orgId`, since the owner of the sandbox is not checked yet: a stranger must not use up the owner's sockets.
    { of: 'the sandbox', key: `sockets of ${orgId} ${sandboxId}`, max: limits.socketsPerSandboxMax },
    { of: 'the organisation', key: socketsKey(orgId), max: socketsMax },
  ]
}

/** Apart from other WebSockets: a browser behind a tunnel opens many, and must not keep the next command out. */
export function tunnelCaps({ limits, orgId }: Opened, sandboxId: string): StreamCap[] {
  return [
    { of: 'the sandbox', key: `tunnels of ${orgId} ${sandboxId}`, max: limits.tunnelsPerSandboxMax },
    { of: 'the organisation', key: `tunnels of ${orgId}`, max: limits.tunnelsPerOrganisationMax },
  ]
}

export function exportCaps({ limits, orgId }: Opened): StreamCap[] {
  return [{ of: 'the organisation', key: `exports of ${orgId}`, max: limits.exportsPerOrganisationMax }]
}

/** Bounds uploads and downloads together, also those with signed URLs: `orgId` is whose sandbox it is. */
export function fileCaps(limits: HttpLimits, orgId: string): StreamCap[] {
  return [{ of: 'the organisation', key: `files of ${orgId}`, max: limits.fileTransfersPerOrganisationMax }]
}
