import type { ReactNode } from 'react'

interface SparklineProps {
  /** Oldest first. */
  values: readonly number[]
  /** The value at the upper edge; default: the largest, at least `least`. */
  max?: number
  least?: number
  /** What it shows, with the newest value. */
  label: string
  width?: number
  height?: number
}

/** A small graph of a few dozen values. */
export function Sparkline({ values, max, least = 1, label, width = 72, height = 20 }: SparklineProps): ReactNode {
  const top = max ?? Math.max(least, ...values)
  const step = width / Math.max(1, values.length - 1)
  const y = (value: number) => height - 1 - (Math.min(Math.max(0, value), top) / top) * (height - 2)
  const line = values
    .map((value, index) => `${index === 0 ? 'M' : 'L'}${(index * step).toFixed(1)} ${y(value).toFixed(1)}`)
    .join('')
  return (
    <svg
      role="img"
      aria-label={label}
      width={width}
      height={height}
      viewBox={`0 0 ${width} ${height}`}
      className="shrink-0 text-accent"
    >
      <title>{label}</title>
      {values.length > 1 && <path d={`${line}L${width} ${height}L0 ${height}Z`} fill="currentColor" opacity="0.15" />}
      {values.length > 1 && <path d={line} fill="none" stroke="currentColor" strokeWidth="1.25" />}
    </svg>
  )
}
