import type { Message, SessionInfo, TurnInfo } from 'atoll-sdk'
import type { LeftGroup } from '../stream/left-ranges.ts'
import type { RewoundRow, Row, UserRow } from '../stream/rows.ts'
import type { LogState, LogView } from '../stream/session-log.ts'
import type { Transcript } from '../stream/transcript.ts'

/** A message that the stream does not have. */
interface MessageItem {
  kind: 'message'
  key: string
  event: 0
  revision: 0
  message: Message
  note: string
}

/** The answer that is being written. */
interface DraftItem {
  kind: 'draft'
  key: string
  event: 0
  revision: number
  text: string
}

export type ViewItem = Row | LeftGroup | MessageItem | DraftItem

const itemOf = (message: Message, note: string): MessageItem => ({
  ...{ kind: 'message', key: message.id, event: 0, revision: 0 },
  ...{ message, note },
})

/** Messages that came with the conversation of another session: they precede the first turn. */
export function inheritedOf({ forkedFrom, messages }: SessionInfo, transcript: Transcript, turns: readonly TurnInfo[]) {
  if (forkedFrom === undefined || transcript.before > 0) return []
  const own = new Set([...transcript.ended, ...turns.map(({ messageId }) => messageId)])
  const first = messages.findIndex(({ id, state }) => own.has(id) || state === 'queued' || state === 'started')
  const inherited = first === -1 ? messages : messages.slice(0, first)
  return inherited.filter(({ state }) => state !== 'cancelled').map((message) => itemOf(message, 'before the fork'))
}

/** The message of the turn that runs, or that is next. */
export function currentOf({ messages }: SessionInfo, transcript: Transcript): Message | undefined {
  const isNext = (wanted: string) => (message: Message) => message.state === wanted && !transcript.ended.has(message.id)
  return messages.find(isNext('started')) ?? messages.find(isNext('queued'))
}

/** That message, while the stream has nothing of its turn yet. */
export function pendingOf(session: SessionInfo, transcript: Transcript, state: LogState): MessageItem[] {
  const { activity } = session
  if (transcript.turn !== undefined || state === 'reading' || state === 'held') return []
  if (activity !== 'starting' && activity !== 'working') return []
  const message = currentOf(session, transcript)
  return message === undefined ? [] : [itemOf(message, message.state === 'queued' ? 'waits' : 'the agent has it')]
}

export function draftOf({ draft: { number, text }, state }: LogView): DraftItem[] {
  if (text === '' || state !== 'live') return []
  return [{ ...{ kind: 'draft', key: `draft${number}`, event: 0, text }, revision: text.length }]
}

export function turnMessageOf(
  row: UserRow,
  {
    messages,
    current,
    turns,
  }: { messages: ReadonlyMap<string, Message>; current: Message | undefined; turns: readonly TurnInfo[] },
): Message | undefined {
  const { event, turn } = row
  const holds = ({ firstEvent, lastEvent }: TurnInfo) =>
    firstEvent <= event && (lastEvent === null || lastEvent >= event)
  const id = turn.messageId ?? turns.find(holds)?.messageId
  if (id !== undefined) return messages.get(id)
  return turn.isOver ? undefined : current
}

/** The messages of turns that came with an adoption: their turns have no events here but that of the rewind. */
export function adoptedOf(
  { rewound, event }: RewoundRow,
  { messages }: SessionInfo,
  turns: readonly TurnInfo[],
): Message[] {
  const adopted = new Set(
    turns
      .filter(({ firstEvent }) => firstEvent >= rewound.from_event && firstEvent <= event)
      .map(({ messageId }) => messageId),
  )
  if (adopted.size === 0) return []
  let isWithin = false
  return messages.filter(({ id, role }) => {
    if (role === 'user') isWithin = adopted.has(id)
    return isWithin
  })
}
