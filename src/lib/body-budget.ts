import type { IncomingMessage } from 'node:http'

/** What a part of a body costs beside its bytes, at least: sent byte by byte, a body weighs a hundred times its size. */
const partCostBytes = 256

export interface BudgetOptions {
  /** Most of it for one owner. Default all of it. */
  ownerBytesMax?: number
  /** Each body has so much without asking, so that small ones always pass: as much as an idle connection costs. Default 0. */
  freeBytes?: number
}

/** Bounds what all bodies that are read at one time take of memory together, and those of one owner. */
export class BodyBudget {
  readonly #bytesMax: number
  readonly #ownerBytesMax: number
  readonly #freeBytes: number
  readonly #byOwner = new Map<string, number>()
  #heldBytes = 0

  constructor(bytesMax: number, { ownerBytesMax = bytesMax, freeBytes = 0 }: BudgetOptions = {}) {
    this.#bytesMax = bytesMax
    this.#ownerBytesMax = ownerBytesMax
    this.#freeBytes = freeBytes
  }

  /** One request's share, which grows with its body and is given back when it is disposed of. */
  open(owner = ''): BodyShare {
    let bytes = 0
    let charged = 0
    return {
      take: (more) => {
        const charge = Math.max(0, bytes + more - this.#freeBytes) - charged
        const ofOwner = (this.#byOwner.get(owner) ?? 0) + charge
        if (this.#heldBytes + charge > this.#bytesMax || ofOwner > this.#ownerBytesMax) return false
        bytes += more
        charged += charge
        this.#heldBytes += charge
        if (charge > 0) this.#byOwner.set(owner, ofOwner)
        return true
      },
      [Symbol.dispose]: () => {
        this.#heldBytes -= charged
        const left = (this.#byOwner.get(owner) ?? 0) - charged
        if (left > 0) this.#byOwner.set(owner, left)
        else this.#byOwner.delete(owner)
        bytes = charged = 0
      },
    }
  }
}

export interface BodyShare extends Disposable {
  /** Whether there was room for so much more. */
  take(bytes: number): boolean
}

export interface BodyBounds {
  bytesMax: number
  share: BodyShare
  /** Says in its caller's words why a body is not taken. */
  refuse: (why: 'too_large' | 'no_room') => Error
}

/**
 * Reads a body into memory. Throws what `refuse` makes, with the connection open for an answer, and what the request itself
 * throws when it breaks off.
 */
export async function readBody(request: IncomingMessage, { bytesMax, share, refuse }: BodyBounds): Promise<Buffer> {
  if (Number(request.headers['content-length'] ?? 0) > bytesMax) throw refuse('too_large')
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > bytesMax) throw refuse('too_large')
    if (!share.take(chunk.length + partCostBytes)) throw refuse('no_room')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks, bytes)
}
