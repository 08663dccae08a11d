import { use, type ReactNode } from 'react'
import type { Message } from 'atoll-sdk'
import { Badge } from '../../../ui/badge.tsx'
import { TimeAgo } from '../../../ui/time.tsx'
import type { UserRow } from '../stream/rows.ts'
import { BoundedText } from './bounded-text.tsx'
import { ConversationContext } from './conversation-context.ts'
import { Markdown } from './markdown.tsx'
import { plainText } from './plain-text.ts'
import { RowFrame } from './row-frame.tsx'

const charsMax = 4000

/** The message that began a turn. */
export function UserTurn({ row }: { row: UserRow }): ReactNode {
  const { messageOf, userId } = use(ConversationContext)
  const message = messageOf(row)
  return (
    <RowFrame event={row.event}>
      <Bubble
        author={userId}
        {...(message === undefined ? {} : { createdAt: message.createdAt })}
        aside={row.isCut ? 'its beginning is in earlier events' : undefined}
      >
        {message === undefined ? (
          <span className="text-soft">
            {row.turn.isOver ? 'This message is not kept any more.' : 'Reading the message …'}
          </span>
        ) : (
          <MessageText text={message.content} />
        )}
      </Bubble>
    </RowFrame>
  )
}

/** A message that is not in the stream: it waits, or came with the conversation of another session. */
export function MessageItem({ message, note }: { message: Message; note: string }): ReactNode {
  const { userId } = use(ConversationContext)
  const { role, content, createdAt } = message
  return (
    <RowFrame event={0}>
      <Bubble author={role === 'user' ? userId : role} isAgent={role !== 'user'} createdAt={createdAt} aside={note}>
        {role === 'user' ? <MessageText text={content} /> : <AgentText text={content} />}
      </Bubble>
    </RowFrame>
  )
}

interface BubbleProps {
  author: string
  isAgent?: boolean
  createdAt?: string
  aside?: string | undefined
  children: ReactNode
}

function Bubble({ author, isAgent = false, createdAt, aside, children }: BubbleProps): ReactNode {
  return (
    <div className={isAgent ? 'rounded-lg border px-3 py-2' : 'rounded-lg bg-accent-faint px-3 py-2'}>
      <p className="mb-0.5 flex flex-wrap items-center gap-x-2 text-xs text-soft">
        <bdi className="max-w-full truncate font-semibold text-ink">{author}</bdi>
        {createdAt !== undefined && <TimeAgo time={createdAt} />}
        {aside !== undefined && <Badge>{aside}</Badge>}
      </p>
      <div className="flex min-w-0 flex-col break-words" dir="auto">
        {children}
      </div>
    </div>
  )
}

function AgentText({ text }: { text: string }): ReactNode {
  return (
    <BoundedText text={plainText(text)} charsMax={charsMax}>
      {(shown) => <Markdown text={shown} />}
    </BoundedText>
  )
}

function MessageText({ text }: { text: string }): ReactNode {
  return (
    <BoundedText text={plainText(text)} charsMax={charsMax}>
      {(shown) => <span className="break-words whitespace-pre-wrap">{shown}</span>}
    </BoundedText>
  )
}
