import { Agent, type ClientRequest } from 'node:http'
import type { Duplex } from 'node:stream'
import { Semaphore } from '../lib/async/semaphore.ts'
import type { FreezeReason, PreviewTarget } from '../sandbox/index.ts'

/** Bounds concurrent connections to one port of a sandbox. Further requests wait. */
const connectionsMax = 256
/** Bounds idle connections to one port. */
const idleConnectionsMax = 8
/** Bounds idle connections to all sandboxes. */
const idleConnectionsTotalMax = 1024
/** Shorter than the five seconds after which Node's own server, the usual one inside, closes an idle connection. */
const idleMs = 4000

export type Dial = (target: PreviewTarget) => Promise<Duplex>

interface ConnectionOptions {
  target?: PreviewTarget
}

/**
 * An HTTP agent whose connections lead to ports of sandboxes, kept for a moment by sandbox and port. `dial` gives any duplex stream; the methods of
 * `net.Socket` that the agent calls do nothing on it.
 */
export class PreviewAgent extends Agent {
  readonly #dial: Dial
  /** By name. */
  readonly #permits = new Semaphore({ permitsPerKey: connectionsMax })
  #isClosed = false

  constructor(dial: Dial) {
    super({
      keepAlive: true,
      // The agent does not count connections while they are dialled; `#permits` does.
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
      // The type wants a stream beside an error too.
      callback(error as Error, undefined as unknown as Duplex)
      return
    }
    // A duplex stream stays half open by default. A server that ended its side serves no further request.
    stream.once('end', () => setImmediate(() => stream.destroy()))
    stream.on('error', () => stream.destroy())
    // A request in flight has a moment to finish; an idle connection delays the freeze for nothing.
    stream.once('freeze', (reason: FreezeReason) => {
      frozen.set(stream, reason)
      if (idleTimers.has(stream)) stream.destroy()
    })
    callback(null, likeSocket(stream))
  }

  override keepSocketAlive(stream: Duplex): boolean {
    if (this.#isClosed || stream.destroyed || stream.readableEnded || frozen.has(stream)) return false
    // A request waits for this permit.
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

  /** Closes the idle connections of one sandbox, before it stops or freezes. */
  drop(sandboxId: string): void {
    this.#dropBy(`${sandboxId}:`)
  }

  /** Closes all idle connections and keeps none from now on. Connections in use finish their request. */
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
/** Timers of idle connections. */
const idleTimers = new WeakMap<Duplex, NodeJS.Timeout>()
const frozen = new WeakMap<object, FreezeReason>()

/** Whether a connection was closed by a checkpoint of its sandbox, so that a new dial works at once. */
export function closedForCheckpoint(stream: object | null): boolean {
  return stream !== null && frozen.get(stream) === 'checkpoint'
}

/** Methods that the agent and its requests call on a socket. */
const socketCalls = ['setKeepAlive', 'setNoDelay', 'setTimeout', 'ref', 'unref'] as const

function likeSocket(stream: Duplex): Duplex {
  const calls = stream as Duplex & Partial<Record<(typeof socketCalls)[number], () => Duplex>>
  for (const name of socketCalls) calls[name] ??= () => stream
  return stream
}
