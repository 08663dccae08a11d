import { ChevronRight, GitBranch } from 'lucide-react'
import type { ReactNode } from 'react'
import { formatCount } from '../../../lib/format.ts'
import { cx } from '../../../ui/cx.ts'
import type { LeftGroup } from '../stream/left-ranges.ts'

/** What a rewind has left, folded: it is not lost. */
export function LeftBranch({
  group: { range, messageCount, isOpen },
  onToggle,
}: {
  group: LeftGroup
  onToggle: (by: number) => void
}): ReactNode {
  const { from, to, by } = range
  return (
    <button
      type="button"
      aria-expanded={isOpen}
      onClick={() => onToggle(by)}
      className="flex min-h-8 w-full items-center gap-2 rounded-md border border-dashed px-2 text-left text-[13px] text-soft hover:bg-panel"
    >
      <ChevronRight aria-hidden="true" className={cx('size-4 shrink-0', isOpen && 'rotate-90')} />
      <GitBranch aria-hidden="true" className="size-4 shrink-0" />
      <span className="min-w-0 flex-1">
        A branch that was left: {formatCount(to - from + 1)} events
        {messageCount > 0 && `, ${formatCount(messageCount)} ${messageCount === 1 ? 'message' : 'messages'}`}
      </span>
      <span className="text-xs tabular-nums">
        {from}–{to}
      </span>
    </button>
  )
}
