import { Agent } from 'node:http'
import type { ClientRequest } from 'node:http'
import type { Duplex } from 'node:stream'
import { Semaphore } from '../lib/async/semaphore.ts'
import type { FreezeReason, PreviewTarget } from '../sandbox/index.ts'

/** Connections to one port of a sandbox at the same time; more requests than that wait for one. */
const connectionsMax = 256
/** Connections to one port that are kept for the next request. */
const idleConnectionsMax = 8
/** Connections kept over all sandboxes. */
const idleConnectionsTotalMax = 1024
/** Shorter than the five seconds after which Node's own server, the usual one inside, closes an idle connection. */
const idleMs = 4000

type Dial = (target: PreviewTarget, signal?: AbortSignal) => Promise<Duplex>

interface ConnectionOptions {
  target?: PreviewTarget
}

/**
 * Connections straight to ports of sandboxes, kept for a moment by sandbox and port. What `dial` gives is any duplex stream; the
 * calls that the agent would make of a `net.Socket` do nothing on another one.
 */
export class Connections extends Agent {
  readonly #dial: Dial
  /** By name. */
  readonly #permits = new Semaphore({ permitsPerKey: connectionsMax })
  #isClosed = false

  constructor(dial: Dial) {
    super({
      keepAlive: true,
      // The agent counts connections only when they are made, not while they are dialled: `#permits` counts both.
      maxSockets: Infinity,
      maxFreeSockets: idleConnectionsMax,
      maxTotalSockets: Infinity,
      scheduling: 'lifo',
    })
    this.#dial = dial
  }

  override getName(options?: object): string {
    const { target } = (options ?? {}) as ConnectionOptions
    return target === undefined ? '' : `${target.sandbox.id}:${target.port}`
  }

  override createConnection(options: object, callback?: (error: Error | null, stream: Duplex) => void): undefined {
    const { target } = options as ConnectionOptions
    if (target === undefined || callback === undefined) throw new Error('a connection needs a target')
    void this.#connect(target, callback)
    return undefined
  }

  async #connect(target: PreviewTarget, callback: (error: Error | null, stream: Duplex) => void): Promise<void> {
    const name = this.getName({ target })
    const release = await this.#permits.acquire({ key: name })
    let stream: Duplex
    try {
      stream = await this.#dial(target)
      nameOf.set(stream, name)
      if (stream.closed) release()
      else stream.once('close', release)
    } catch (error) {
      release()
      // The type asks for a stream even where there is none.
      callback(error as Error, undefined as unknown as Duplex)
      return
    }
    // A duplex stream stays half open unless told otherwise; a server that has ended is of no use to the next request.
    stream.once('end', () => setImmediate(() => stream.destroy()))
    stream.on('error', () => stream.destroy())
    // A request under way has a moment to finish; a connection that waits for the next one is only in the way.
    stream.once('freeze', (reason: FreezeReason) => {
      frozen.set(stream, reason)
      if (idleTimers.has(stream)) stream.destroy()
    })
    callback(null, likeSocket(stream))
  }

  override keepSocketAlive(stream: Duplex): boolean {
    if (this.#isClosed || stream.destroyed || stream.readableEnded || frozen.has(stream)) return false
    // Others wait for its place.
    if (this.#permits.users(nameOf.get(stream) ?? '') > connectionsMax) return false
    if (this.#idleCount() >= idleConnectionsTotalMax) return false
    const canBeKept = super.keepSocketAlive(stream) as unknown as boolean
    const timer = setTimeout(() => stream.destroy(), idleMs)
    timer.unref()
    idleTimers.set(stream, timer)
    return canBeKept
  }

  override reuseSocket(stream: Duplex, request: ClientRequest): void {
    clearTimeout(idleTimers.get(stream))
    idleTimers.delete(stream)
    super.reuseSocket(stream, request)
  }

  /** Closes the idle connections of one sandbox, which may be about to stop or to be frozen. */
  drop(sandboxId: string): void {
    this.#dropBy(`${sandboxId}:`)
  }

  /** Closes all idle connections and keeps none from now on; those in use serve their request to its end. */
  close(): void {
    this.#isClosed = true
    this.#dropBy('')
  }

  #dropBy(prefix: string): void {
    for (const [name, streams] of Object.entries(this.freeSockets)) {
      if (!name.startsWith(prefix)) continue
      for (const stream of streams ?? []) stream.destroy()
    }
  }

  #idleCount(): number {
    let count = 0
    for (const streams of Object.values(this.freeSockets)) count += streams?.length ?? 0
    return count
  }
}

const nameOf = new WeakMap<Duplex, string>()
/** Of connections that wait for their next request. */
const idleTimers = new WeakMap<Duplex, NodeJS.Timeout>()
const frozen = new WeakMap<object, FreezeReason>()

/** Whether a connection went because its sandbox was checkpointed, so that it can be dialled again at once. */
export function wentForCheckpoint(stream: object | null): boolean {
  return stream !== null && frozen.get(stream) === 'checkpoint'
}

/** What the agent and its requests call on a socket that they keep. */
const socketCalls = ['setKeepAlive', 'setNoDelay', 'setTimeout', 'ref', 'unref'] as const

function likeSocket(stream: Duplex): Duplex {
  const calls = stream as Duplex & Partial<Record<(typeof socketCalls)[number], () => Duplex>>
  for (const name of socketCalls) calls[name] ??= () => stream
  return stream
}
