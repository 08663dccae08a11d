import { memo, type ReactNode } from 'react'
import { cx } from '../../../ui/cx.ts'
import type { Row } from '../stream/rows.ts'
import { AnswerText } from './answer-text.tsx'
import { CapsuleNotice, CheckpointNotice, ErrorNotice, Note, RewoundNotice } from './notices.tsx'
import { ToolCall } from './tool-call.tsx'
import { TurnResult } from './turn-result.tsx'
import { UserTurn } from './user-message.tsx'

interface RowViewProps {
  row: Row
  /** Of the row, which is changed in place: it is what tells that it must be drawn again. */
  revision: number
  isOpen: boolean
  /** A rewind has left it. */
  isLeft: boolean
  /** A link leads to it. */
  isMarked: boolean
  onToggle: (key: string) => void
}

/** One row of a conversation. */
export const RowView = memo(function RowView({ row, isOpen, isLeft, isMarked, onToggle }: RowViewProps): ReactNode {
  return (
    <div
      {...(isMarked ? { 'aria-current': 'location' as const } : {})}
      className={cx(
        isLeft && 'border-l-2 border-dashed border-warn pl-3',
        isMarked && 'rounded-md outline-2 outline-offset-2 outline-accent',
      )}
    >
      <RowBody row={row} isOpen={isOpen} onToggle={onToggle} />
    </div>
  )
})

function RowBody({ row, isOpen, onToggle }: Pick<RowViewProps, 'row' | 'isOpen' | 'onToggle'>): ReactNode {
  switch (row.kind) {
    case 'user':
      return <UserTurn row={row} />
    case 'text':
      return <AnswerText row={row} />
    case 'tool':
      return <ToolCall row={row} isOpen={isOpen} onToggle={onToggle} />
    case 'result':
      return <TurnResult row={row} />
    case 'error':
      return <ErrorNotice row={row} />
    case 'checkpoint':
      return <CheckpointNotice row={row} />
    case 'rewound':
      return <RewoundNotice row={row} />
    case 'capsule':
      return <CapsuleNotice row={row} />
    case 'note':
      return <Note row={row} />
  }
}
