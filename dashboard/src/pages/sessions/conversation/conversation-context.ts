import type { Message, TurnInfo } from 'atoll-sdk'
import { createContext } from 'react'
import type { RewoundRow, UserRow } from '../stream/rows.ts'

interface ConversationFacts {
  sessionId: string
  userId: string
  /** Of the turn of a row, as far as it is known. */
  messageOf: (row: UserRow) => Message | undefined
  /** What came into the session with a fork that was adopted. */
  adoptedBy: (row: RewoundRow) => readonly Message[]
  turns: readonly TurnInfo[]
}

/** What rows need beside what the stream says. */
export const ConversationContext = createContext<ConversationFacts>({
  sessionId: '',
  userId: '',
  messageOf: () => undefined,
  adoptedBy: () => [],
  turns: [],
})
