import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { patchType } from '../../protocol/http/sandbox-trees.ts'
import { goneSignal } from './build-stream.ts'
import { assertLeastRate, passedOn } from './least-rate.ts'
import type { Answer, Call } from './route.ts'
import { fileCaps } from './streams.ts'

/** A client that takes nothing for this long is dropped. */
const stalledMs = 60_000

/** Both abort with the signal, which tells that the client has left. */
interface Compared {
  compare: (signal: AbortSignal) => Promise<object>
  patch: (signal: AbortSignal) => AsyncGenerator<Uint8Array>
}

/** Answers with a comparison of disks as JSON, or with its patch if the client accepts one. It counts as a transfer of files. */
export async function answerComparison(
  call: Pick<Call, 'request' | 'reply' | 'deps' | 'limits' | 'streams' | 'orgId'>,
  { compare, patch }: Compared,
): Promise<Answer | undefined> {
  const { reply, limits, streams, orgId } = call
  const signal = goneSignal(call)
  const release = streams.open('file', fileCaps(limits, orgId))
  try {
    if (isPatchWanted(call)) return await sendPatch(call, patch(signal))
    return { statusCode: 200, headers: { vary: 'accept' }, body: await compare(signal) }
  } catch (error) {
    if (!signal.aborted) throw error
    // Nobody is there to be answered.
    reply.hijack()
    return undefined
  } finally {
    release()
  }
}

function isPatchWanted({ request }: Pick<Call, 'request'>): boolean {
  return (request.headers.accept ?? '').toLowerCase().includes(patchType)
}

/** An error that comes before the first bytes is thrown; a later one cuts the connection, so that no client takes a part for the whole. */
async function sendPatch(
  { reply, deps }: Pick<Call, 'reply' | 'deps'>,
  patch: AsyncGenerator<Uint8Array>,
): Promise<undefined> {
  const first = await patch.next()
  reply.hijack()
  const response = reply.raw
  response.setTimeout(stalledMs, () => response.destroy())
  response.writeHead(200, {
    ...(reply.getHeaders() as Record<string, string>),
    'content-type': `${patchType}; charset=utf-8`,
    'x-content-type-options': 'nosniff',
    'cache-control': 'no-store',
    vary: 'accept',
  })
  const stop = assertLeastRate({ ...passedOn(response), end: () => response.destroy() })
  try {
    await pipeline(Readable.from(behind(first, patch), { highWaterMark: 1 }), response)
  } catch (error) {
    deps.log.debug({ err: error }, 'a diff broke')
  } finally {
    stop()
    await patch.return(undefined)
    response.setTimeout(0)
  }
  return undefined
}

async function* behind(
  first: IteratorResult<Uint8Array, unknown>,
  rest: AsyncGenerator<Uint8Array>,
): AsyncGenerator<Uint8Array> {
  if (first.done === true) return
  yield first.value
  yield* rest
}
