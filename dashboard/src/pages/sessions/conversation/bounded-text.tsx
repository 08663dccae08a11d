import { useState, type ReactNode } from 'react'
import { formatCount } from '../../../lib/format.ts'
import { Button } from '../../../ui/button.tsx'

interface BoundedTextProps {
  text: string
  /** Characters that are drawn at first, and with each further request. */
  charsMax: number
  children: (shown: string) => ReactNode
}

/** Draws the beginning of a long text, and more of it on demand: a browser needs seconds for megabytes. */
export function BoundedText({ text, charsMax, children }: BoundedTextProps): ReactNode {
  const [parts, setParts] = useState(1)
  const left = text.length - parts * charsMax
  if (left <= 0) return children(text)
  return (
    <>
      {children(text.slice(0, parts * charsMax))}
      <Button size="small" className="mt-1 self-start" onClick={() => setParts(parts + 1)}>
        Show more ({formatCount(left)} characters left)
      </Button>
    </>
  )
}
