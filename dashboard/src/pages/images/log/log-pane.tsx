import { useVirtualizer } from '@tanstack/react-virtual'
import { ArrowDownToLine } from 'lucide-react'
import { useEffect, useRef, useState, type ReactNode } from 'react'
import { visibleLine } from '../../../lib/visible.ts'
import { formatCount } from '../../../lib/format.ts'
import { Button } from '../../../ui/button.tsx'
import { cx } from '../../../ui/cx.ts'
import type { LogLine, LogView } from './log-lines.ts'

interface LogPaneProps extends LogView {
  label: string
  /** Stands in place of the lines while there are none. */
  empty: ReactNode
}

const lineHeightPx = 20
/** So near to the end counts as at it. */
const endPx = 2 * lineHeightPx

const looks: Record<LogLine['kind'], string> = { told: 'font-semibold text-accent', stdout: '', stderr: 'text-warn' }

/** Lines of a log of any length, of which those in view are in the page. It follows the end until the reader scrolls away from it. */
export function LogPane({ label, lines, dropped, widest, empty }: LogPaneProps): ReactNode {
  const scroll = useRef<HTMLDivElement>(null)
  const [isFollowing, setFollowing] = useState(true)
  const count = lines.length
  const virtualizer = useVirtualizer({
    count,
    getScrollElement: () => scroll.current,
    estimateSize: () => lineHeightPx,
    overscan: 20,
  })
  useEffect(() => {
    const { current } = scroll
    if (isFollowing && current !== null) current.scrollTop = current.scrollHeight
  }, [isFollowing, count, dropped])
  const onScroll = () => {
    const { current } = scroll
    if (current !== null) setFollowing(current.scrollHeight - current.scrollTop - current.clientHeight < endPx)
  }
  return (
    <div className="relative flex min-h-40 flex-1 flex-col gap-2">
      {dropped > 0 && (
        <p className="text-[13px] text-soft">
          The first {formatCount(dropped)} lines are left out here, and not in the download.
        </p>
      )}
      <div
        ref={scroll}
        role="region"
        aria-label={label}
        tabIndex={0}
        className="min-h-0 flex-1 overflow-auto rounded-md border bg-panel py-2 font-mono text-[13px]"
        onScroll={onScroll}
      >
        {count === 0 && <div className="px-3 py-1 font-sans text-soft">{empty}</div>}
        <div
          className="relative min-w-full"
          style={{ height: virtualizer.getTotalSize(), width: `calc(${widest}ch + 1.5rem)` }}
        >
          {virtualizer.getVirtualItems().map(({ index, start }) => {
            const line = lines[index]
            if (line === undefined) return null
            return (
              <div
                key={index}
                className={cx('absolute inset-x-0 px-3 whitespace-pre', looks[line.kind])}
                style={{ height: lineHeightPx, lineHeight: `${lineHeightPx}px`, transform: `translateY(${start}px)` }}
              >
                {visibleLine(line.text)}
                {line.cut > 0 && <span className="text-soft"> … {formatCount(line.cut)} more characters</span>}
              </div>
            )
          })}
        </div>
      </div>
      {!isFollowing && (
        <Button size="small" className="absolute right-4 bottom-4 shadow-lg" onClick={() => setFollowing(true)}>
          <ArrowDownToLine aria-hidden="true" className="size-3.5" /> To the end
        </Button>
      )}
    </div>
  )
}
