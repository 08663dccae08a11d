import type { ReactNode } from 'react'
import { cx } from '../../../ui/cx.ts'
import { TimeAgo } from '../../../ui/time.tsx'
import { BoundedText } from '../conversation/bounded-text.tsx'
import { Markdown } from '../conversation/markdown.tsx'
import { plainText } from '../conversation/plain-text.ts'
import { VirtualList } from './virtual-list.tsx'

const shownCharactersMax = 6000
const messageHeightPx = 120

export interface SaidMessage {
  id: string
  role: 'user' | 'assistant' | 'system'
  content: string
  createdAt: string
}

interface MessageListProps {
  messages: readonly SaidMessage[]
  label: string
  /** Begins at the newest message. */
  isAtEnd?: boolean
  /** Called when its end is near. */
  onNearEnd?: () => void
  footer?: ReactNode
}

const names = { user: 'User', assistant: 'Agent', system: 'Service' }

/** What was said, oldest first: messages of any number and length. */
export function MessageList({ messages, ...list }: MessageListProps): ReactNode {
  return (
    <VirtualList
      {...list}
      items={messages}
      keyOf={({ id }) => id}
      estimatePx={messageHeightPx}
      render={(message) => <Said message={message} />}
    />
  )
}

function Said({ message: { role, content, createdAt } }: { message: SaidMessage }): ReactNode {
  return (
    <article className={cx('flex min-w-0 flex-col border-b px-4 py-3', role === 'user' && 'bg-panel')}>
      <header className="flex items-baseline gap-2">
        <h4 className="text-[13px] font-semibold">{names[role]}</h4>
        <span className="text-xs text-soft">
          <TimeAgo time={createdAt} />
        </span>
      </header>
      <BoundedText text={content} charsMax={shownCharactersMax}>
        {(shown) =>
          role === 'assistant' ? (
            <Markdown text={shown} />
          ) : (
            <p dir="auto" className="break-words whitespace-pre-wrap">
              {plainText(shown)}
            </p>
          )
        }
      </BoundedText>
    </article>
  )
}
