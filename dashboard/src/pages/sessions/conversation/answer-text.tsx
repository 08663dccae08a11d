import type { ReactNode } from 'react'
import type { TextRow } from '../stream/rows.ts'
import { BoundedText } from './bounded-text.tsx'
import { Markdown } from './markdown.tsx'
import { plainText } from './plain-text.ts'
import { RowFrame } from './row-frame.tsx'

const charsMax = 20_000

/** What the agent has written. */
export function AnswerText({ row }: { row: TextRow }): ReactNode {
  return (
    <RowFrame event={row.event}>
      <div className="flex min-w-0 flex-col px-1">
        <BoundedText text={plainText(row.text)} charsMax={charsMax}>
          {(shown) => <Markdown text={shown} />}
        </BoundedText>
      </div>
    </RowFrame>
  )
}
