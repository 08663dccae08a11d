import type { ReactNode } from 'react'
import { formatCount } from '../lib/format.ts'
import { cx } from '../ui/cx.ts'

/** Lines that were added and removed. */
export function DiffStat({
  added,
  deleted,
  className,
}: {
  added: number
  deleted: number
  className?: string
}): ReactNode {
  return (
    <span className={cx('inline-flex gap-2 font-mono text-[13px] whitespace-nowrap tabular-nums', className)}>
      <span className="sr-only">{`${formatCount(added)} lines added, ${formatCount(deleted)} removed`}</span>
      <span aria-hidden="true" className="text-good">{`+${formatCount(added)}`}</span>
      <span aria-hidden="true" className="text-bad">{`−${formatCount(deleted)}`}</span>
    </span>
  )
}
