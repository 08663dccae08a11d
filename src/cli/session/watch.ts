import type { Message, Session } from '../../../sdk/src/index.ts'
import { note, printable, writeJson, writeLine } from '../output.ts'
import { onceBroken, Position, watchStart } from './turn.ts'
import { toldBy } from './words.ts'

interface WatchOptions {
  after?: number | undefined
  /** End with the last turn of the messages that there are. */
  once?: boolean | undefined
  json?: boolean | undefined
}

/** Prints the work of the agent until the session ends: its words on standard output, what it does on standard error. */
export async function watch(session: Session, { after = 0, once = false, json = false }: WatchOptions): Promise<void> {
  const fact = (text: string) => {
    if (!json) note(`· ${text}`)
  }
  const { messages, status } = await session.info()
  // The stream of one that has ended ends by itself.
  const newest = once && status === 'running' ? await session.newestEvent() : Infinity
  const left = messages.filter(({ state }) => state === 'queued' || state === 'started')
  const last = left.at(-1)?.id
  if (once && last === undefined && after >= newest) return
  const over = new AbortController()
  const position = new Position(after)
  const start = tellStart(session, left, fact, position, over.signal).then((isOver) => isOver && once && over.abort())
  try {
    for await (const { sequence, data } of session.events({ after, signal: over.signal, onBreak: onceBroken(fact) })) {
      const told = toldBy(data)
      if (json) await writeJson({ sequence, data })
      else if (told.words !== undefined) await writeLine(printable(told.words))
      else if (told.fact !== undefined) fact(told.fact)
      const isEnd = data.type === 'turn_complete'
      if (isEnd && (!once || last !== data.message_id)) fact('the turn is complete')
      if (once && (last === undefined ? sequence >= newest : isEnd && last === data.message_id)) break
      position.moveTo(sequence)
    }
  } catch (error) {
    if (!over.signal.aborted) throw error
  } finally {
    over.abort()
    await start
  }
}

/** Tells what happens before the agent begins with the first message that waits. True when it will not, though the session has not ended. */
async function tellStart(
  session: Session,
  left: readonly Message[],
  fact: (text: string) => void,
  position: Position,
  signal: AbortSignal,
): Promise<boolean> {
  const first = left.find(({ state }) => state === 'queued')
  const end = first && (await watchStart(session, { messageId: first.id }, { fact }, position, signal))
  if (end === undefined) return false
  fact(end.text)
  return (await session.info()).status === 'running'
}
