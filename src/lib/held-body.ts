import type { IncomingMessage } from 'node:http'

/** Bounds what the bodies of all requests take of memory together. */
export class BodyBudget {
  readonly #bytesMax: number
  #heldBytes = 0

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax
  }

  /** One request's share, which grows with its body and is given back when it is disposed of. */
  open(): BodyShare {
    let bytes = 0
    return {
      take: (more) => {
        if (this.#heldBytes + more > this.#bytesMax) return false
        this.#heldBytes += more
        bytes += more
        return true
      },
      [Symbol.dispose]: () => {
        this.#heldBytes -= bytes
        bytes = 0
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
    if (!share.take(chunk.length)) throw refuse('no_room')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks, bytes)
}
