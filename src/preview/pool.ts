import { Agent, type ClientRequest } from 'node:http'
import type { Duplex } from 'node:stream'
import { ServiceError } from '../errors.ts'
import { Semaphore } from '../lib/async/semaphore.ts'
import type { FreezeReason, PreviewTarget } from '../sandbox/index.ts'

/** Bounds concurrent connections to one port of a sandbox. Further requests wait. */
const connectionsMax = 256
/** Bounds the requests that wait for a connection to one port. */
const waitingMax = 1024
/** Bounds idle connections to one port. */
const idleConnectionsMax = 8
/** Bounds idle connections to all sandboxes, and to those of one organisation: with 128 ports a single sandbox could take all. */
const idlePermits = { permits: 1024, permitsPerKey: 512 }
/** Shorter than the five seconds after which Node's own server, the usual one inside, closes an idle connection. */
const idleMs = 4000

export type Dial = (target: PreviewTarget) => Promise<Duplex>

interface ConnectionOptions {
  target?: PreviewTarget
  /** Aborts when nobody waits for the connection any more. */
  gone?: AbortSignal
  /** Takes no kept connection, and the new one is not kept: those that are may all be dead. */
  isFresh?: boolean
}

/**
 * An HTTP agent whose connections lead to ports of sandboxes, kept for a moment by sandbox and port. `dial` gives any duplex stream; the methods of
 * `net.Socket` that the agent calls do nothing on it.
 */
export class PreviewAgent extends Agent {
  readonly #dial: Dial
  /** Connections in use or being dialled, by name. */
  readonly #permits = new Semaphore({ permitsPerKey: connectionsMax })
  /** Idle connections, by organisation. */
  readonly #idle = new Semaphore(idlePermits)
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
    const { target, isFresh = false } = (options ?? {}) as ConnectionOptions
    return target === undefined ? '' : `${target.sandbox.id}:${target.port}${isFresh ? ':fresh' : ''}`
  }

  override createConnection(options: object, callback?: (error: Error | null, stream: Duplex) => void): undefined {
    const { target, gone, isFresh = false } = options as ConnectionOptions
    if (target === undefined || callback === undefined) throw new Error('a connection needs a target')
    this.#connect(target, gone).then(
      (stream) => {
        if (isFresh) fresh.add(stream)
        callback(null, stream)
      },
      // The type wants a stream beside an error too.
      (error: unknown) => callback(error as Error, undefined as unknown as Duplex),
    )
    return undefined
  }

  async #connect(target: PreviewTarget, gone?: AbortSignal): Promise<Duplex> {
    const name = this.getName({ target })
    if (this.#permits.users(name) >= connectionsMax + waitingMax) {
      throw new ServiceError('unavailable', `${waitingMax} requests wait for port ${target.port} already`)
    }
    // A request whose client has left must neither wait nor dial.
    const release = await this.#permits.acquire({ key: name, signal: gone })
    let stream: Duplex
    try {
      stream = await this.#dial(target)
    } catch (error) {
      release()
      throw error
    }
    nameOf.set(stream, name)
    ownerOf.set(stream, target.sandbox.orgId)
    if (stream.closed) release()
    else stream.once('close', release)
    // A duplex stream stays half open by default. A server that ended its side serves no further request.
    stream.once('end', () => setImmediate(() => stream.destroy()))
    stream.on('error', () => stream.destroy())
    keepReadable(stream)
    // A request in flight has a moment to finish; an idle connection delays the freeze for nothing.
    stream.once('freeze', (reason: FreezeReason) => {
      frozen.set(stream, reason)
      if (idleOf.has(stream)) stream.destroy()
    })
    return likeSocket(stream)
  }

  override keepSocketAlive(stream: Duplex): boolean {
    if (this.#isClosed || stream.destroyed || stream.readableEnded || frozen.has(stream) || fresh.has(stream))
      return false
    // A request waits for this permit.
    if (this.#permits.users(nameOf.get(stream) ?? '') > connectionsMax) return false
    const release = this.#idle.tryAcquire({ key: ownerOf.get(stream) ?? '' })
    if (release === undefined) return false
    const timer = setTimeout(() => stream.destroy(), idleMs)
    timer.unref()
    const end = () => {
      clearTimeout(timer)
      idleOf.delete(stream)
      stream.off('close', end)
      release()
    }
    idleOf.set(stream, end)
    stream.once('close', end)
    return super.keepSocketAlive(stream) as unknown as boolean
  }

  override reuseSocket(stream: Duplex, request: ClientRequest): void {
    idleOf.get(stream)?.()
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
}

const nameOf = new WeakMap<Duplex, string>()
const ownerOf = new WeakMap<Duplex, string>()
/** Functions that end the idle time of a connection. */
const idleOf = new WeakMap<Duplex, () => void>()
const frozen = new WeakMap<object, FreezeReason>()
const fresh = new WeakSet<object>()

/**
 * Discards what can no longer be written. A server that answers without reading the body and closes resets the connection for writes, and
 * the error of a write would destroy the stream with the answer that waits in it. The read side reports the end of the connection.
 */
function keepReadable(stream: Duplex): void {
  /* oxlint-disable no-underscore-dangle -- the names that Node gives to what a stream implements */
  const write = stream._write.bind(stream)
  const writev = stream._writev?.bind(stream)
  const unlessClosed =
    (callback: (error?: Error | null) => void) =>
    (error?: NodeJS.ErrnoException | null): void =>
      callback(error?.code === 'EPIPE' || error?.code === 'ECONNRESET' ? null : error)
  stream._write = (chunk, encoding, callback) => write(chunk, encoding, unlessClosed(callback))
  if (writev) stream._writev = (chunks, callback) => writev(chunks, unlessClosed(callback))
  /* oxlint-enable no-underscore-dangle */
}

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
