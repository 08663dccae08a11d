import type { IncomingMessage } from 'node:http'
import { TimeSlice } from './async/time-slice.ts'

/** The cost of a chunk beside its bytes: a body that is sent byte by byte takes a hundred times its size. */
const chunkCostBytes = 256

export interface BudgetOptions {
  /** Most for one owner. Default: all. */
  ownerBytesMax?: number
  /** Not charged per body, so that small bodies always pass: about the cost of an idle connection. Default 0. */
  freeBytes?: number
}

/** Bounds the memory of all request bodies that are read at the same time, in total and per owner. */
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

  /** The share of one request. It grows with the body and is returned when it is disposed. */
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
  /** Charges more bytes. False, and nothing is charged, when the budget is exhausted. */
  take(bytes: number): boolean
}

export interface BodyBounds {
  bytesMax: number
  share: BodyShare
  /** Makes the error of a refused body. */
  refuse: (why: 'too_large' | 'no_room') => Error
}

/**
 * Reads a body into memory. Throws the error of `refuse`, with the connection open for an answer, and the error of a request that breaks
 * off.
 */
export async function readBody(request: IncomingMessage, { bytesMax, share, refuse }: BodyBounds): Promise<Buffer> {
  if (Number(request.headers['content-length'] ?? 0) > bytesMax) throw refuse('too_large')
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > bytesMax) throw refuse('too_large')
    if (!share.take(chunk.length + chunkCostBytes)) throw refuse('no_room')
    chunks.push(chunk)
  }
  return await joined(chunks, bytes)
}

/** `Buffer.concat` of megabytes would hold the event loop. */
async function joined(chunks: readonly Buffer[], bytes: number): Promise<Buffer> {
  const [first] = chunks
  if (first !== undefined && chunks.length === 1) return first
  const body = Buffer.allocUnsafeSlow(bytes)
  const slice = new TimeSlice()
  let at = 0
  for (const chunk of chunks) {
    await slice.next()
    body.set(chunk, at)
    at += chunk.length
  }
  return body
}
