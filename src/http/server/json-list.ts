import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { Semaphore } from '../../lib/async/semaphore.ts'
import { jsonObject, pieceLength, pieces } from './json-text.ts'
import type { Call } from './route.ts'
import { taken } from './taken.ts'

/** Bounds the lists that are being sent. Each has a page of its elements in memory. */
const lists = new Semaphore({ permits: 8, permitsPerKey: 2 })

/** Sends an array whose elements are read as the client takes them. An organisation sends two lists at a time; further ones wait. */
export async function sendList<Item>(
  { reply, orgId, deps }: Pick<Call, 'reply' | 'orgId' | 'deps'>,
  items: AsyncIterable<Item>,
  bodyOf: (item: Item) => object,
): Promise<undefined> {
  const gone = new AbortController()
  const sent = taken(reply.raw)
  void sent.then(() => gone.abort())
  const release = await lists.acquire({ key: orgId, signal: gone.signal })
  void sent.then(release)
  const texts = textsOf(items, bodyOf)
  // A failure before the first piece is answered as an error.
  const first = await texts.next().catch((error: unknown) => {
    release()
    throw error
  })
  reply.hijack()
  const headers = { ...reply.getHeaders(), 'content-type': 'application/json; charset=utf-8' }
  reply.raw.writeHead(200, headers as Record<string, string>)
  try {
    await pipeline(Readable.from(behind(first.value ?? '', texts), { highWaterMark: 1 }), reply.raw)
  } catch (error) {
    if (!gone.signal.aborted) deps.log.error({ err: error }, 'a list broke')
  }
  return undefined
}

async function* textsOf<Item>(
  items: AsyncIterable<Item>,
  bodyOf: (item: Item) => object,
): AsyncGenerator<string, undefined> {
  let piece = '['
  let separator = ''
  for await (const item of items) {
    piece += separator
    separator = ','
    for (const text of jsonObject(bodyOf(item))) {
      piece += text
      if (piece.length < pieceLength) continue
      yield piece
      piece = ''
      await pieces.next()
    }
  }
  yield `${piece}]`
}

async function* behind(first: string, rest: AsyncIterable<string>): AsyncGenerator<string> {
  yield first
  yield* rest
}
