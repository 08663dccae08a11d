import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { FastifyReply } from 'fastify'
import { FairYield } from '../../lib/async/fair-yield.ts'

/** In characters: a piece is done in less than a millisecond, unless one value by itself is longer. */
const pieceLength = 64 * 1024
/** Pieces of all answers together between two looks at what else there is to do. */
const pieces = new FairYield(4)

/** A JSON document that is made while it is sent: all at once, one of megabytes would keep everybody else waiting. */
export class JsonText {
  readonly #pieces: () => Iterable<string>

  constructor(texts: () => Iterable<string>) {
    this.#pieces = () => joined(texts())
  }

  /** All of it, unless it is longer than so many characters. */
  within(length: number): string | undefined {
    let text = ''
    for (const piece of this.#pieces()) {
      text += piece
      if (text.length > length) return undefined
    }
    return text
  }

  /** Answers with it. A long one is made as its client takes it. */
  send(reply: FastifyReply): void {
    reply.type('application/json; charset=utf-8')
    const short = this.within(pieceLength)
    if (short !== undefined) {
      void reply.send(short)
      return
    }
    reply.hijack()
    reply.raw.writeHead(reply.statusCode, reply.getHeaders() as Record<string, string>)
    const long = Readable.from(inTurn(this.#pieces()), { highWaterMark: 1 })
    // A client that is gone needs no answer.
    pipeline(long, reply.raw).catch(() => {})
  }
}

/** The elements of an array, each as JSON, with commas between them. */
export function* jsonElements<Item>(
  items: Iterable<Item>,
  textsOf: (item: Item) => Iterable<string>,
): Generator<string> {
  let separator = ''
  for (const item of items) {
    yield separator
    yield* textsOf(item)
    separator = ','
  }
}

function* joined(texts: Iterable<string>): Generator<string> {
  let piece = ''
  for (const text of texts) {
    piece += text
    if (piece.length < pieceLength) continue
    yield piece
    piece = ''
  }
  if (piece !== '') yield piece
}

async function* inTurn(texts: Iterable<string>): AsyncGenerator<string> {
  for (const text of texts) {
    yield text
    await pieces.next()
  }
}
