import type { Socket } from 'node:net'

/**
 * Bounds the connections of a listener such that nobody is kept out by the number of others: when all are taken, the owner with the most
 * loses its oldest for one of an owner with fewer. A fixed share for each owner would not do, because a tenant has any number of owners
 * (its sandboxes), and one with a single connection must get in whatever they hold.
 */
export class FairConnections {
  readonly #max: number
  /** Connections of each owner, the oldest first. */
  readonly #byOwner = new Map<string, Set<Socket>>()
  #count = 0

  constructor(max: number) {
    this.#max = max
  }

  /** Counts a connection until it closes. False: there is no place for it, and it is destroyed. */
  admit(owner: string, socket: Socket): boolean {
    const own = this.#byOwner.get(owner) ?? new Set()
    if (this.#count >= this.#max && !this.#makeRoom(own.size)) {
      socket.destroy()
      return false
    }
    own.add(socket)
    this.#byOwner.set(owner, own)
    this.#count += 1
    socket.once('close', () => this.#forget(owner, socket))
    return true
  }

  /** Ends the oldest connection of the owner with the most, if that has more than the new connection's owner will have. */
  #makeRoom(ownCount: number): boolean {
    let most: { owner: string; sockets: Set<Socket> } | undefined
    for (const [owner, sockets] of this.#byOwner) {
      if (most === undefined || sockets.size > most.sockets.size) most = { owner, sockets }
    }
    if (most === undefined || most.sockets.size <= ownCount + 1) return false
    const [oldest] = most.sockets
    if (oldest === undefined) return false
    oldest.destroy()
    this.#forget(most.owner, oldest)
    return true
  }

  #forget(owner: string, socket: Socket): void {
    const sockets = this.#byOwner.get(owner)
    if (sockets?.delete(socket) !== true) return
    this.#count -= 1
    if (sockets.size === 0) this.#byOwner.delete(owner)
  }
}
