/** How forks are answered, and answered again under an `Idempotency-Key` when the answer was too large to be kept. */
import type { ForkPlace, ForkResult, SessionView } from '../../session/index.ts'
import { sessionErrorBody } from './errors.ts'
import { jsonElements, JsonStream, JsonText } from './json-text.ts'
import type { Answer } from './route.ts'
import { forkTexts } from './session-view.ts'

type Made = { id: string; place: ForkPlace } | { error: object }

/** What such an answer is read again by. */
interface ReadAgainBy {
  /** The answer is the fork itself. */
  isOne: boolean
  forks: Made[]
}

/** The answer for one fork, which throws its failure. */
export function forkAnswer(results: readonly ForkResult[]): Answer {
  const [result] = results
  if (result === undefined || 'error' in result) throw result?.error
  const body = new JsonText(() => forkTexts(result.view, result.place))
  return { statusCode: 201, body, readAgainBy: readAgainBy(results, true) }
}

/** The answer for several forks, with failures in their places. */
export function forksAnswer(results: readonly ForkResult[]): Answer {
  return { statusCode: 201, body: new JsonText(() => listTexts(results)), readAgainBy: readAgainBy(results, false) }
}

/** Whether this is of forks. */
export function isOfForks(by: string): boolean {
  return by.startsWith('{')
}

/** The body as its sessions are now. `read` holds a view in memory until `sent` settles, so it is called for one after the other. */
export async function forksAgain(
  by: string,
  read: (id: string, sent: Promise<unknown>) => Promise<SessionView>,
  sent: Promise<unknown>,
): Promise<JsonText | JsonStream> {
  const { isOne, forks } = JSON.parse(by) as ReadAgainBy
  const [fork] = forks
  if (!isOne || fork === undefined || 'error' in fork) return new JsonStream(() => listAgain(forks, read))
  const view = await read(fork.id, sent)
  return new JsonText(() => forkTexts(view, fork.place))
}

function readAgainBy(results: readonly ForkResult[], isOne: boolean): string {
  const forks = results.map((result): Made => {
    if ('error' in result) return sessionErrorBody(result.error)
    return { id: result.view.session.id, place: result.place }
  })
  return JSON.stringify({ isOne, forks } satisfies ReadAgainBy)
}

function* listTexts(results: readonly ForkResult[]): Generator<string> {
  yield '{"sessions":['
  yield* jsonElements(results, (result) =>
    'error' in result ? [JSON.stringify(sessionErrorBody(result.error))] : forkTexts(result.view, result.place),
  )
  yield ']}'
}

async function* listAgain(
  forks: readonly Made[],
  read: (id: string, sent: Promise<unknown>) => Promise<SessionView>,
): AsyncGenerator<Iterable<string>> {
  yield ['{"sessions":[']
  for (const [index, fork] of forks.entries()) {
    if (index > 0) yield [',']
    if ('error' in fork) {
      yield [JSON.stringify(fork)]
      continue
    }
    const sent = Promise.withResolvers<void>()
    try {
      yield forkTexts(await read(fork.id, sent.promise), fork.place)
    } catch (error) {
      // It has been deleted since.
      yield [JSON.stringify(sessionErrorBody(error))]
    } finally {
      sent.resolve()
    }
  }
  yield [']}']
}
