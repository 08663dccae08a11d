import type { ReactNode } from 'react'
import { Markdown } from './markdown.tsx'
import { plainText } from './plain-text.ts'

/** It is drawn anew with each piece. Of more its end is shown, as plain text. */
const markdownCharsMax = 8000

/** An answer as it is written. */
export function DraftText({ text }: { text: string }): ReactNode {
  return (
    <div role="group" aria-label="The answer as it is written" aria-busy="true" className="min-w-0 px-1 pr-12">
      {text.length <= markdownCharsMax ? (
        <Markdown text={plainText(text)} />
      ) : (
        <p className="break-words whitespace-pre-wrap">…{plainText(text.slice(-markdownCharsMax))}</p>
      )}
      <span aria-hidden="true" className="mt-1 inline-block h-4 w-1.5 animate-pulse bg-accent" />
    </div>
  )
}
