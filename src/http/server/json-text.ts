import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { FastifyReply } from 'fastify'
import { FairYield } from '../../lib/async/fair-yield.ts'

/** In characters: a piece is done in less than a millisecond, unless one value by itself is longer. */
export const pieceLength = 64 * 1024
/** Pieces of all answers together between two yields. */
export const pieces = new FairYield(4)

/** A JSON document that is made while it is sent: `JSON.stringify` of megabytes would block the process. */
export class JsonText {
  readonly #pieces: () => Iterable<string>

  constructor(texts: () => Iterable<string>) {
    this.#pieces = () => joined(texts())
  }

  /** The whole text, or undefined if it is longer than `length` characters. */
  within(length: number): string | undefined {
    let text = ''
    for (const piece of this.#pieces()) {
      text += piece
      if (text.length > length) return undefined
    }
    return text
  }

  /** Sends it. A long document is made at the client's pace. */
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
    // The client left.
    pipeline(long, reply.raw).catch(() => {})
  }
}

/** A JSON document whose parts are read while it is sent. */
export class JsonStream {
  readonly #parts: () => AsyncIterable<Iterable<string>>

  constructor(parts: () => AsyncIterable<Iterable<string>>) {
    this.#parts = parts
  }

  /** Sends it at the client's pace. A failure cuts the connection. */
  send(reply: FastifyReply): void {
    reply.type('application/json; charset=utf-8').hijack()
    reply.raw.writeHead(reply.statusCode, reply.getHeaders() as Record<string, string>)
    const text = Readable.from(ofParts(this.#parts()), { highWaterMark: 1 })
    // The client left.
    pipeline(text, reply.raw).catch(() => {})
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

/** What `JSON.stringify` makes of an object of plain values, in pieces. */
export function* jsonObject(object: object): Generator<string> {
  let before = '{'
  for (const [name, value] of Object.entries(object)) {
    if (value === undefined) continue
    yield `${before}${JSON.stringify(name)}:`
    yield* jsonValue(value)
    before = ','
  }
  yield before === '{' ? '{}' : '}'
}

function* jsonValue(value: unknown): Generator<string> {
  if (typeof value === 'string') yield* jsonString(value)
  else if (Array.isArray(value)) {
    yield '['
    yield* jsonElements(value, jsonValue)
    yield ']'
  } else if (typeof value === 'object' && value !== null) yield* jsonObject(value)
  else yield JSON.stringify(value)
}

/** Between the two halves of a surrogate pair, a cut makes two escapes that are the same pair. */
function* jsonString(text: string): Generator<string> {
  yield '"'
  for (let start = 0; start < text.length; start += pieceLength) {
    yield JSON.stringify(text.slice(start, start + pieceLength)).slice(1, -1)
  }
  yield '"'
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

async function* ofParts(parts: AsyncIterable<Iterable<string>>): AsyncGenerator<string> {
  for await (const texts of parts) yield* inTurn(joined(texts))
}

async function* inTurn(texts: Iterable<string>): AsyncGenerator<string> {
  for (const text of texts) {
    yield text
    await pieces.next()
  }
}
