import { EventEmitter, once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  AtollError,
  ConnectionError,
  RequestTimeoutError,
  type AgentEvent,
  type Session,
  type SessionInfo,
} from '../../../sdk/src/index.ts'
import { CliError, exitCodes } from '../exit-codes.ts'
import { onInterrupt } from '../interrupt.ts'
import { note, printable, writeJson, writeLine } from '../output.ts'
import { waiting } from '../progress.ts'
import type { Flags } from '../settings.ts'
import { ends, toldBy } from './words.ts'

/** Between two looks at a session whose agent has not begun with the message. */
const lookMs = 250
const lookMaxMs = 5_000

const breakMs = 30_000

/** What the stream does not tell. */
const startEvents = new Set<string>(['session_started', 'sandbox_ready', 'sandbox_hibernated', 'sandbox_resumed'])

type Result = Extract<AgentEvent, { type: 'result' }>

/** A message that was sent, and the number of the newest event before it. */
export interface Sent {
  messageId: string
  after: number
}

/** How a turn ended. `text` is the answer of the agent where `isDone`, and else what went wrong. */
export interface TurnEnd {
  isDone: boolean
  isInterrupted: boolean
  text: string
  /** Absent where the turn never began. */
  result?: Result
}

/** What is told while a turn lasts. */
export interface Telling {
  /** Words of the agent that are not the last ones of the turn. */
  words: (text: string) => void | Promise<void>
  fact: (text: string) => void
  /** The words that end the turn are told too. */
  hasLast?: boolean
}

/** On standard error, so that standard output has the answer alone. */
export const onStandardError: Telling = { words: note, fact: (text) => note(`· ${text}`) }

/** How far a stream has been told, for one that must not speak before it. */
export class Position {
  #sequence: number
  readonly #moves = new EventEmitter()

  /** @param after the number of the event that the stream begins after */
  constructor(after: number) {
    this.#sequence = after
  }

  moveTo(sequence: number): void {
    this.#sequence = sequence
    this.#moves.emit('move')
  }

  /** Rejects when the signal is given. */
  async reached(sequence: number, signal: AbortSignal): Promise<void> {
    while (this.#sequence < sequence) await once(this.#moves, 'move', { signal })
  }
}

export async function sendTo(session: Session, message: string): Promise<Sent> {
  const after = await session.newestEvent()
  return { after, messageId: messageIn(await session.send(message), message) }
}

/** The newest user message, of this text where there is one: others may send at the same time. */
export function messageIn({ messages }: SessionInfo, text: string): string {
  const sent = messages.filter(({ role }) => role === 'user')
  return (sent.findLast(({ content }) => content === text) ?? sent.at(-1))?.id ?? ''
}

/**
 * Follows the session until the turn of a message has ended. Ctrl-C interrupts the turn; a second one ends the program. Throws a `CliError` that
 * says how to go on when the connection breaks for good.
 */
export async function followTurn(session: Session, sent: Sent, telling: Telling): Promise<TurnEnd> {
  const over = new AbortController()
  const restore = onInterrupt(interruptOf(session))
  const position = new Position(sent.after)
  const turn = readTurn(session, sent, telling, position, over.signal)
  const start = watchStart(session, sent, telling, position, over.signal)
  try {
    const end = Promise.race([turn, start]).then(async (early) => early ?? (await turn))
    return await waiting('waiting for the agent', end)
  } catch (error) {
    if (!(error instanceof ConnectionError || error instanceof RequestTimeoutError)) throw error
    const hint = `the agent works on: atoll session logs ${session.id}`
    throw new CliError(error.message, { hint, exitCode: exitCodes.unreachable, cause: error })
  } finally {
    restore()
    over.abort()
    await Promise.allSettled([turn, start])
  }
}

function interruptOf(session: Session): () => void {
  let isAsked = false
  return () => {
    if (isAsked) process.exit(exitCodes.interrupted)
    isAsked = true
    note('· the turn is interrupted; Ctrl-C again leaves it at that')
    session.interrupt().catch(() => process.exit(exitCodes.interrupted))
  }
}

async function readTurn(
  session: Session,
  { messageId, after }: Sent,
  { words, fact, hasLast = false }: Telling,
  position: Position,
  signal: AbortSignal,
): Promise<TurnEnd> {
  let last: string | undefined
  let result: Result | undefined
  for await (const { sequence, data } of session.events({ after, signal, onBreak: onceBroken(fact) })) {
    if (data.type === 'turn_complete' && data.message_id === messageId) {
      const end = endOf(result)
      if (last !== undefined && !end.isDone) await words(last)
      return end
    }
    if (data.type === 'turn_complete') result = undefined
    if (data.type === 'result') result = data
    const told = toldBy(data)
    if (told.words !== undefined) {
      if (last !== undefined) await words(last)
      last = told.words
    }
    const isMore = told.fact !== undefined || data.type === 'turn_complete'
    if (last !== undefined && (isMore || hasLast)) {
      await words(last)
      last = undefined
    }
    // That of this turn is told with its end.
    if (told.fact !== undefined && data.type !== 'result') fact(told.fact)
    position.moveTo(sequence)
  }
  return notDone('the session has ended, and the turn with it')
}

/** Tells of a break once in a while: a server that starts again refuses connections for seconds. */
export function onceBroken(fact: Telling['fact']): () => void {
  let toldAt = -Infinity
  return () => {
    if (Date.now() - toldAt > breakMs) fact('the connection broke; it is made again')
    toldAt = Date.now()
  }
}

function endOf(result: Result | undefined): TurnEnd {
  if (result === undefined) return notDone('the turn ended without a result')
  const { subtype, result: text } = result
  if (subtype === 'success') return { isDone: true, isInterrupted: false, text, result }
  const isInterrupted = subtype === 'interrupted'
  const why = isInterrupted || text === '' ? '' : `: ${text}`
  return { isDone: false, isInterrupted, text: `${ends[subtype]}${why}`, result }
}

function notDone(text: string): TurnEnd {
  return { isDone: false, isInterrupted: false, text }
}

/**
 * Tells what happens before the agent begins with a message, which is no part of the stream. Undefined when it has begun, or the session has
 * ended, which the stream tells by its end. The end of the message otherwise, once the stream is told, whose last event may say why: a boot
 * that failed, a message that was taken back.
 */
export async function watchStart(
  session: Session,
  sent: Pick<Sent, 'messageId'>,
  telling: Pick<Telling, 'fact'>,
  position: Position,
  signal: AbortSignal,
): Promise<TurnEnd | undefined> {
  const end = await lookForEnd(session, sent, telling, signal)
  if (end === undefined) return undefined
  try {
    await position.reached(await session.newestEvent({ signal }), signal)
  } catch (error) {
    if (signal.aborted) return undefined
    if (!(error instanceof AtollError)) throw error
  }
  return end
}

async function lookForEnd(
  session: Session,
  { messageId }: Pick<Sent, 'messageId'>,
  { fact }: Pick<Telling, 'fact'>,
  signal: AbortSignal,
): Promise<TurnEnd | undefined> {
  const told = new Set<string>()
  for (let waitMs = lookMs; !signal.aborted; waitMs = Math.min(2 * waitMs, lookMaxMs)) {
    const info = await lookAt(session, signal)
    const message = info?.messages.find(({ id }) => id === messageId)
    if (info !== undefined && message !== undefined) {
      for (const { id, type, message: text, createdAt } of info.events) {
        if (told.has(id) || !startEvents.has(type) || createdAt < message.createdAt || signal.aborted) continue
        told.add(id)
        fact(text)
      }
      if (message.state === 'cancelled') return notDone('the message was taken back before the agent began')
      if (message.state !== 'queued' || info.status === 'ended') return undefined
      if (info.reason === 'budget')
        return notDone('the budget of the session is spent, and the message waits; "atoll session set" raises it')
      if (info.activity === 'failed') return notDone('the session has failed; another message tries it again')
    }
    await sleep(waitMs, undefined, { signal }).catch(() => undefined)
  }
  return undefined
}

/** Undefined when the server does not answer: the stream decides whether that is the end. */
async function lookAt(session: Session, signal: AbortSignal): Promise<SessionInfo | undefined> {
  try {
    return await session.info({ signal })
  } catch (error) {
    if (error instanceof AtollError || signal.aborted) return undefined
    throw error
  }
}

/** Prints the answer alone, or with `--json` how the turn ended. Throws for a turn that was not done, and returns the exit code. */
export async function writeEnd(end: TurnEnd, session: Session, { messageId }: Sent, flags: Flags): Promise<number> {
  const { isDone, isInterrupted, text, result } = end
  if (flags.json)
    await writeJson({ sessionId: session.id, messageId, ...(result ?? { result: text }), type: undefined })
  else if (isDone && text !== '') await writeLine(printable(text))
  if (isInterrupted) {
    note(`· ${text}`)
    return exitCodes.interrupted
  }
  if (!isDone) throw new CliError(text, { hint: `atoll session logs ${session.id} has all of it` })
  if (text === '') note('· the agent has done its work without a word')
  return exitCodes.done
}
