import type { ReactNode } from 'react'
import { formatCount } from '../lib/format.ts'
import { cx } from './cx.ts'

/** What is drawn of a value. A browser lays out this much at once without a pause. */
const charsMax = 20_000

/** A value as indented JSON, or a text as it is, of which a bounded part is drawn. */
export function JsonText({
  value,
  label,
  className,
}: {
  value: unknown
  label: string
  className?: string
}): ReactNode {
  const text = typeof value === 'string' ? value : (JSON.stringify(value, undefined, 2) ?? String(value))
  const left = text.length - charsMax
  return (
    <div>
      <pre
        role="region"
        aria-label={label}
        // What scrolls must be reached by the keyboard.
        tabIndex={0}
        className={cx(
          'max-h-80 overflow-auto rounded-md border bg-panel p-3 font-mono text-[13px] break-all whitespace-pre-wrap',
          className,
        )}
      >
        {left > 0 ? text.slice(0, charsMax) : text}
      </pre>
      {left > 0 && <p className="mt-1 text-[13px] text-soft">{formatCount(left)} more characters are not shown.</p>}
    </div>
  )
}
