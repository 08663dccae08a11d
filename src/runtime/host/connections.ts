import type { Socket } from 'node:net'
import { ServiceError } from '../../errors.ts'
import { freezeGraceMs, type FreezeReason } from '../../sandbox/ports/runtime-driver.ts'

/** Per sandbox. Further dials fail instead of waiting for the end of a checkpoint. */
const waitingDialsMax = 4_096
/** Per sandbox, open ones and dials together. */
const connectionsMax = 1_024

/**
 * The connections to one sandbox's guest. Its states:
 *
 *     open ── freeze ──► frozen: open connections end, dials wait (checkpoint) or fail (hibernate) ── thaw ──► open
 */
class GuestConnections {
  readonly #open = new Set<Socket>()
  readonly #dials = new Set<Promise<Socket>>()
  #frozen: { reason: FreezeReason; ended: Promise<void> } | undefined
  #waiting = 0
  #opening = 0

  /** A waiting dial counts: its connection would otherwise escape the next freeze. */
  get unused(): boolean {
    return this.#open.size === 0 && this.#opening === 0 && this.#frozen === undefined
  }

  async open(connect: () => Promise<Socket>, signal?: AbortSignal): Promise<Socket> {
    this.#opening += 1
    try {
      for (;;) {
        await this.#thawed(signal)
        if (this.#open.size + this.#dials.size >= connectionsMax) {
          throw new ServiceError('unavailable', `the sandbox has ${connectionsMax} connections already`)
        }
        const dial = connect()
        this.#dials.add(dial)
        const socket = await dial.finally(() => this.#dials.delete(dial))
        if (this.#frozen === undefined) {
          this.#open.add(socket)
          socket.once('close', () => this.#open.delete(socket))
          return socket
        }
        // A freeze began meanwhile and does not know this socket.
        socket.destroy()
      }
    } finally {
      this.#opening -= 1
    }
  }

  async freeze(reason: FreezeReason): Promise<() => void> {
    if (this.#frozen !== undefined) throw new Error('frozen already')
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#frozen = { reason, ended: promise }
    const left = [...this.#open]
    const closed = left.map((socket) => new Promise<void>((done) => void socket.once('close', () => done())))
    for (const socket of left) socket.emit('freeze', reason)
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

/** The connections to the guests of all sandboxes, by sandbox. */
export class Connections {
  readonly #guests = new Map<string, GuestConnections>()

  /** Opens a connection with `connect` as soon as the sandbox is not frozen. Throws `unavailable`. */
  async open(id: string, connect: () => Promise<Socket>, signal?: AbortSignal): Promise<Socket> {
    const socket = await this.#use(id, (guest) => guest.open(connect, signal))
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
