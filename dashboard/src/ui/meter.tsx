import type { ReactNode } from 'react'
import { cx } from './cx.ts'

const warnShare = 0.8
const fullShare = 0.95

interface MeterProps {
  label: string
  value: number
  /** What the whole bar stands for; 0 or less: there is no bound, and no bar. */
  max: number
  /** Value and bound in words: `3 of 20`. */
  text: string
}

/** How much of a bound is taken. From 80 % on it warns, from 95 % on it is red. */
export function Meter({ label, value, max, text }: MeterProps): ReactNode {
  const share = max > 0 ? Math.min(1, Math.max(0, value / max)) : 0
  return (
    <div>
      <div className="mb-1 flex flex-wrap items-baseline justify-between gap-x-3">
        <span>{label}</span>
        <span className="text-[13px] text-soft tabular-nums">{text}</span>
      </div>
      {max > 0 && (
        <div
          role="meter"
          aria-label={label}
          aria-valuemin={0}
          aria-valuemax={100}
          aria-valuenow={Math.round(share * 100)}
          aria-valuetext={text}
          className="h-2 overflow-hidden rounded-full bg-panel ring-1 ring-line ring-inset"
        >
          <div
            className={cx(
              'h-full rounded-full',
              share >= fullShare ? 'bg-bad' : share >= warnShare ? 'bg-warn' : 'bg-accent',
            )}
            style={{ width: `${share * 100}%` }}
          />
        </div>
      )}
    </div>
  )
}
