import type { ResultSubtype } from '../protocol/agent.ts'
import { type TurnOutput, weightOf } from './output-budget.ts'
import type { StreamEvent } from './session.ts'
import type { SessionStore } from './store.ts'

/**
 * The agent's work on one message, from its state `started` to `consumed`. All of it can be read back from the store, so
 * that a restart of the server goes on where the commit before stood:
 *
 *     started ──result──► resulted ──turn_complete──► (no turn)
 *
 * Each message gets exactly one `result` and one `turn_complete`; where the agent cannot say them, the service does.
 */
export interface Turn {
  messageId: string
  /** Set once its `result` is in the stream. */
  result?: { subtype: ResultSubtype; text: string }
  /** What the assistant has said, for the message of this turn; bounded. */
  text: string
  /** The agent's own session id, once it is known. */
  agentSessionId: string
  /** How often the agent process ended during this turn. */
  agentExits: number
  output: TurnOutput
}

export const agentExitedCode = 'agent_exited'

/** Of the text of one assistant message, in characters; the beginning of a longer one is kept. */
const textLengthMax = 256 * 1024
const pageEvents = 32

export function newTurn(messageId: string): Turn {
  return { messageId, text: '', agentSessionId: '', agentExits: 0, output: { lines: 0, bytes: 0 } }
}

/** What one stream event of this turn adds to it. */
export function advance(turn: Turn, data: StreamEvent['data']): Turn {
  const agentSessionId = typeof data['session_id'] === 'string' ? data['session_id'] : turn.agentSessionId
  if (data.type === 'assistant') return { ...turn, agentSessionId, text: joined(turn.text, assistantText(data)) }
  if (data.type === 'result') {
    const result = { subtype: data['subtype'] as ResultSubtype, text: data['result'] as string }
    return { ...turn, agentSessionId, result }
  }
  if (data.type === 'error' && data['code'] === agentExitedCode) return { ...turn, agentExits: turn.agentExits + 1 }
  return { ...turn, agentSessionId }
}

/** The turn that is under way, from the message in state `started` and what the stream has since the turn before. */
export async function loadTurn(store: SessionStore, sessionId: string): Promise<Turn | undefined> {
  const message = await store.firstMessage(sessionId, 'started')
  if (message === undefined) return undefined
  let turn = newTurn(message.id)
  const start = await endOfTurnBefore(store, sessionId)
  await eachPage(store, sessionId, { after: start, until: await store.lastSequence(sessionId) }, (page) => {
    for (const { data } of page) {
      const { lines, bytes } = turn.output
      turn = { ...advance(turn, data), output: { lines: lines + 1, bytes: bytes + weightOf(data) } }
    }
  })
  return turn
}

/** Number of the newest `turn_complete`, searched from the end; 0 when there is none. */
async function endOfTurnBefore(store: SessionStore, sessionId: string): Promise<number> {
  let end = await store.lastSequence(sessionId)
  while (end > 0) {
    const after = Math.max(0, end - pageEvents)
    const found: number[] = []
    await eachPage(store, sessionId, { after, until: end }, (page) => {
      found.push(...page.filter(({ data }) => data.type === 'turn_complete').map(({ sequence }) => sequence))
    })
    const complete = found.at(-1)
    if (complete !== undefined) return complete
    end = after
  }
  return 0
}

/** One page after the other: none is held while the next one is read. */
async function eachPage(
  store: SessionStore,
  sessionId: string,
  { after, until }: { after: number; until: number },
  take: (page: readonly StreamEvent[]) => void,
): Promise<void> {
  const next = async (start: number): Promise<number> => {
    const page = await store.stream(sessionId, start, Math.min(pageEvents, until - start))
    take(page)
    return page.at(-1)?.sequence ?? until
  }
  for (let start = after; start < until;) start = await next(start)
}

function assistantText(data: StreamEvent['data']): string {
  const { content } = data['message'] as { content: { type: string; text?: string }[] }
  return content.map((block) => (block.type === 'text' ? (block.text ?? '') : '')).join('')
}

function joined(before: string, text: string): string {
  if (text.trim() === '') return before
  const all = before === '' ? text : `${before}\n\n${text}`
  return all.length <= textLengthMax ? all : `${all.slice(0, textLengthMax).toWellFormed()}…`
}
