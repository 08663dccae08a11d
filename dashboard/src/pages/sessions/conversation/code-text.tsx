import type { ReactNode } from 'react'
import { CopyButton } from '../../../ui/copy.tsx'
import { BoundedText } from './bounded-text.tsx'

const charsMax = 10_000

/** Code or output in a fixed width, of which a bounded part is drawn, with its own scroll and a button that copies all of it. */
export function CodeText({ text, label }: { text: string; label: string }): ReactNode {
  return (
    <div className="relative flex min-w-0 flex-col">
      <BoundedText text={text} charsMax={charsMax}>
        {(shown) => (
          <pre
            role="region"
            aria-label={label}
            // What scrolls must be reached by the keyboard.
            tabIndex={0}
            dir="ltr"
            className="max-h-80 min-h-9 overflow-auto rounded-md border bg-panel p-2 pr-10 font-mono text-[13px] break-words whitespace-pre-wrap"
          >
            {shown}
          </pre>
        )}
      </BoundedText>
      <div className="absolute top-0.5 right-2">
        <CopyButton text={text} label="Copy" />
      </div>
    </div>
  )
}
