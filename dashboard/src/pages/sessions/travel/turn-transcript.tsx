import type { SessionInfo, TurnInfo } from 'atoll-sdk'
import type { ReactNode } from 'react'
import { EmptyState } from '../../../ui/states.tsx'
import { MessageList } from './message-list.tsx'
import { messagesTo } from './turns.ts'

interface TurnTranscriptProps {
  session: SessionInfo
  turn: TurnInfo
  turns: readonly TurnInfo[]
}

/** What was said up to the end of a turn, in the branch of that turn. */
export function TurnTranscript({ session, turn, turns }: TurnTranscriptProps): ReactNode {
  const said = messagesTo(session.messages, turns, turn)
  if (said.length === 0)
    return (
      <div className="p-3">
        <EmptyState title="No message of this turn is kept" />
      </div>
    )
  return <MessageList key={turn.messageId} label="Transcript to this turn" messages={said} isAtEnd />
}
