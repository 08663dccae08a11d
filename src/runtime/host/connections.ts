import type { Socket } from 'node:net'
import { ServiceError } from '../../errors.ts'
import { freezeGraceMs, type FreezeReason } from '../../sandbox/ports/runtime-driver.ts'

/** Per sandbox. Further dials fail instead of waiting for the end of a checkpoint. */
const waitingDialsMax = 4_096
/** Per sandbox, open ones and dials together. */
const connectionsMax = 1_024
/** Bound of those to its ports: visitors of a preview must not keep the owner and probes from the guest. */
const portConnectionsMax = 768
/** Per owner: sixteen sandboxes with all of theirs would take all that hostd carries. */
const ownerConnectionsMax = 8_192
/** To all guests together, as each takes a thread of hostd, whose own bound (`hostd/src/relay/table.rs`) leaves room for probes. */
const guestConnectionsMax = 15_360

export interface OpenOptions {
  signal?: AbortSignal | undefined
  /** Who is charged. Default: nobody. */
  owner?: string | undefined
  /** `port`: to a port of the sandbox. `probe`: to its guest, whatever the bounds, because a sandbox without an answer is ended. */
  kind?: 'guest' | 'port' | 'probe'
}

/**
 * The connections to one sandbox's guest. Its states:
 *
 *     open ── freeze ──► frozen: open connections end, dials wait (checkpoint) or fail (hibernate) ── thaw ──► open
 */
class GuestConnections {
  readonly #open = new Set<Socket>()
  readonly #dials = new Set<Promise<Socket>>()
  /** Connections and dials to ports. */
  #ports = 0
  #frozen: { reason: FreezeReason; ended: Promise<void> } | undefined
  #waiting = 0
  #opening = 0

  /** A waiting dial counts: its connection would otherwise escape the next freeze. */
  get unused(): boolean {
    return this.#open.size === 0 && this.#opening === 0 && this.#frozen === undefined
  }

  /** `reserve` counts a connection where others share a bound, and may refuse it; the result is called at its end. */
  async open(connect: () => Promise<Socket>, reserve: () => () => void, options: OpenOptions): Promise<Socket> {
    this.#opening += 1
    try {
      for (;;) {
        await this.#thawed(options.signal)
        this.#assertRoom(options)
        const release = this.#count(reserve(), options)
        const dial = connect()
        this.#dials.add(dial)
        let socket: Socket
        try {
          socket = await dial.finally(() => this.#dials.delete(dial))
        } catch (error) {
          release()
          throw error
        }
        if (this.#frozen === undefined) {
          this.#open.add(socket)
          socket.once('close', () => {
            this.#open.delete(socket)
            release()
          })
          return socket
        }
        // A freeze began meanwhile and does not know this socket.
        socket.destroy()
        release()
      }
    } finally {
      this.#opening -= 1
    }
  }

  #assertRoom({ kind }: OpenOptions): void {
    if (kind === 'probe') return
    if (kind === 'port' && this.#ports >= portConnectionsMax) {
      throw new ServiceError('unavailable', `the sandbox has ${portConnectionsMax} connections to its ports already`)
    }
    if (this.#open.size + this.#dials.size >= connectionsMax) {
      throw new ServiceError('unavailable', `the sandbox has ${connectionsMax} connections already`)
    }
  }

  #count(release: () => void, { kind }: OpenOptions): () => void {
    if (kind !== 'port') return release
    this.#ports += 1
    return () => {
      this.#ports -= 1
      release()
    }
  }

  endAll(): void {
    const left = [...this.#open]
    for (const socket of left) {
      if (socket.readableEnded) socket.destroy()
      else socket.once('end', () => socket.destroy())
    }
    // Those of clients that do not read.
    if (left.length > 0) setTimeout(() => left.forEach((socket) => socket.destroy()), freezeGraceMs).unref()
  }

  async freeze(reason: FreezeReason): Promise<() => void> {
    if (this.#frozen !== undefined) throw new Error('frozen already')
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#frozen = { reason, ended: promise }
    const left = [...this.#open]
    const closed = left.map((socket) => new Promise<void>((done) => void socket.once('close', () => done())))
    for (const socket of left) announceFreeze(socket, reason)
    const late = setTimeout(() => left.forEach((socket) => socket.destroy()), freezeGraceMs)
    await Promise.allSettled([...closed, ...this.#dials])
    clearTimeout(late)
    return () => {
      this.#frozen = undefined
      resolve()
    }
  }

  async #thawed(signal?: AbortSignal): Promise<void> {
    while (this.#frozen !== undefined) {
      const { reason, ended } = this.#frozen
      if (reason === 'hibernate') throw new ServiceError('unavailable', 'the sandbox hibernates')
      if (this.#waiting >= waitingDialsMax) throw new ServiceError('unavailable', 'the sandbox is being saved')
      this.#waiting += 1
      try {
        await untilAborted(ended, signal)
      } finally {
        this.#waiting -= 1
      }
    }
  }
}

/** Emits `freeze`; for a connection on its way to its owner, who does not listen yet, once somebody does. */
function announceFreeze(socket: Socket, reason: FreezeReason): void {
  if (socket.emit('freeze', reason)) return
  socket.on('newListener', function announceLate(event: string) {
    if (event !== 'freeze') return
    socket.off('newListener', announceLate)
    // It is added after this.
    queueMicrotask(() => socket.emit('freeze', reason))
  })
}

/** The connections to the guests of all sandboxes, by sandbox. */
export class Connections {
  readonly #guests = new Map<string, GuestConnections>()
  readonly #byOwner = new Map<string, number>()
  /** To guests, of all sandboxes. */
  #toGuests = 0

  /** Opens a connection with `connect` as soon as the sandbox is not frozen. Throws `unavailable`, also where a bound is reached. */
  async open(id: string, connect: () => Promise<Socket>, options: OpenOptions = {}): Promise<Socket> {
    const reserve = () => this.#reserve(options)
    const socket = await this.#use(id, (guest) => guest.open(connect, reserve, options))
    socket.once('close', () => this.#forget(id))
    return socket
  }

  /**
   * Emits `freeze` on all connections, and destroys those that are left after the grace time. When it returns there is no
   * connection, and none opens until the returned function is called.
   */
  async freeze(id: string, reason: FreezeReason): Promise<() => void> {
    const thaw = await this.#use(id, (guest) => guest.freeze(reason))
    return () => {
      thaw()
      this.#forget(id)
    }
  }

  /**
   * To be called when the machine has ended. That alone ends one direction of each connection; a client that waits would hold the other one for
   * ever, and with it the network namespace.
   */
  endAll(id: string): void {
    this.#guests.get(id)?.endAll()
  }

  #reserve({ owner, kind = 'guest' }: OpenOptions): () => void {
    const isBounded = kind !== 'probe'
    const ofOwner = owner === undefined ? 0 : (this.#byOwner.get(owner) ?? 0)
    if (isBounded && ofOwner >= ownerConnectionsMax) {
      const message = `the sandboxes of the organisation have ${ownerConnectionsMax} connections already`
      throw new ServiceError('unavailable', message)
    }
    if (isBounded && kind !== 'port' && this.#toGuests >= guestConnectionsMax) {
      throw new ServiceError('unavailable', 'the server has too many connections to sandboxes')
    }
    const step = (by: 1 | -1) => {
      if (kind !== 'port') this.#toGuests += by
      if (owner === undefined) return
      const count = (this.#byOwner.get(owner) ?? 0) + by
      if (count > 0) this.#byOwner.set(owner, count)
      else this.#byOwner.delete(owner)
    }
    step(1)
    return () => step(-1)
  }

  async #use<Result>(id: string, work: (guest: GuestConnections) => Promise<Result>): Promise<Result> {
    const guest = this.#guests.get(id) ?? new GuestConnections()
    this.#guests.set(id, guest)
    try {
      return await work(guest)
    } finally {
      this.#forget(id)
    }
  }

  #forget(id: string): void {
    if (this.#guests.get(id)?.unused === true) this.#guests.delete(id)
  }
}

/** Throws the signal's reason when it comes first. */
async function untilAborted(promise: Promise<void>, signal?: AbortSignal): Promise<void> {
  if (signal === undefined) return promise
  signal.throwIfAborted()
  const { promise: aborted, reject } = Promise.withResolvers<never>()
  const onAbort = () => reject(signal.reason as Error)
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    await Promise.race([promise, aborted])
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}
