import type { ReactNode } from 'react'
import { useNow } from '../lib/clock.ts'
import { formatSeconds, formatTime } from '../lib/format.ts'

/** How long ago, or in how long; the whole time in the reader's zone is its title. */
export function TimeAgo({ time }: { time: string }): ReactNode {
  const now = useNow()
  const seconds = (now - Date.parse(time)) / 1000
  if (Number.isNaN(seconds)) return time
  const text =
    Math.abs(seconds) < 5 ? 'now' : seconds > 0 ? `${formatSeconds(seconds)} ago` : `in ${formatSeconds(-seconds)}`
  return (
    <time dateTime={time} title={formatTime(time)} className="whitespace-nowrap tabular-nums">
      {text}
    </time>
  )
}
