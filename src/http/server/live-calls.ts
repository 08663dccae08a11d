import type { Duplex } from 'node:stream'
import type { Organisations } from '../../organisation/index.ts'
import type { Caller } from './auth.ts'

/** Time for the answer of the call that ends a key with which it was made, and for short calls under way. */
const graceMs = 250
const sweepMs = 500

interface LiveCall {
  orgId: string
  keyId?: string
  expiresMs: number
  socket: Duplex
}

/**
 * The calls under way, streams and WebSockets among them. It ends those of a key that is ended or expires, and of an organisation that is
 * suspended or deleted, within a second.
 */
export class LiveCalls implements Disposable {
  readonly #calls = new Set<LiveCall>()
  readonly #timer: NodeJS.Timeout
  readonly #unsubscribe: () => void

  constructor(organisations: Pick<Organisations, 'subscribe'>) {
    this.#unsubscribe = organisations.subscribe((event) => {
      if (event.type === 'key_ended') this.#endSoon(({ keyId }) => keyId === event.keyId)
      if (event.type === 'suspended' || event.type === 'deleting') this.#endSoon(({ orgId }) => orgId === event.orgId)
    })
    this.#timer = setInterval(() => this.#endExpired(), sweepMs).unref()
  }

  /** Counts a call until the returned function is called. */
  open({ organisation, keyId, keyExpiresAt }: Caller, socket: Duplex): () => void {
    const expiresMs = keyExpiresAt?.getTime() ?? Infinity
    const call: LiveCall = { orgId: organisation.id, expiresMs, socket, ...(keyId === undefined ? {} : { keyId }) }
    this.#calls.add(call)
    return () => this.#calls.delete(call)
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer)
    this.#unsubscribe()
  }

  #endSoon(isMeant: (call: LiveCall) => boolean): void {
    setTimeout(() => this.#end(isMeant), graceMs).unref()
  }

  #endExpired(): void {
    const now = Date.now()
    this.#end(({ expiresMs }) => expiresMs <= now)
  }

  #end(isMeant: (call: LiveCall) => boolean): void {
    for (const call of this.#calls) if (isMeant(call)) call.socket.destroy()
  }
}
