import type { Range, UsageSearch } from './search.ts'
import { rangeDefault } from './search.ts'

/** A day of the reader's zone, which is shorter or longer when the clock changes. */
export interface Day {
  /** `YYYY-MM-DD`. */
  date: string
  from: Date
  /** Excluded; of today it is now. */
  to: Date
  /** Nothing is counted for it any more. */
  isOver: boolean
}

const dayMs = 86_400_000
/** What machines have used in the last seconds of a day is counted by then. */
const settleMs = 120_000
/** The API answers for at most so many days at once, and has minutes for no more. */
export const daysMax = 90

const lengths: Record<Exclude<Range, 'month'>, number> = { '7d': 7, '30d': 30, '90d': daysMax }

/** The days of a window, the oldest first. Days to come are left out, and of a longer window the newest 90 count. */
export function daysOf({ range = rangeDefault, from, to }: UsageSearch, now: Date): Day[] {
  const today = startOf(now)
  const last = to === undefined ? today : earlier(dayOf(to), today)
  const first =
    from !== undefined
      ? dayOf(from)
      : range === 'month'
        ? new Date(last.getFullYear(), last.getMonth(), 1)
        : plusDays(last, 1 - lengths[range])
  const days: Day[] = []
  for (let start = first > last ? last : first; start <= last; start = plusDays(start, 1)) {
    const end = plusDays(start, 1)
    days.push({
      date: dateText(start),
      from: start,
      to: earlier(end, now),
      isOver: end.getTime() + settleMs <= now.getTime(),
    })
    if (days.length > daysMax) days.shift()
  }
  return days
}

/** All of them at once, as the API takes it: ninety days of which one has 25 hours are too many. */
export function windowOf(days: readonly Day[]): { from: string; to: string } {
  const to = (days.at(-1)?.to ?? new Date()).getTime()
  const from = Math.max(days[0]?.from.getTime() ?? 0, to - daysMax * dayMs)
  return { from: new Date(from).toISOString(), to: new Date(to).toISOString() }
}

/** `YYYY-MM-DD` of a time in the reader's zone. */
export function dateText(date: Date): string {
  const two = (value: number) => String(value).padStart(2, '0')
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`
}

function startOf(date: Date): Date {
  return new Date(date.getFullYear(), date.getMonth(), date.getDate())
}

function dayOf(text: string): Date {
  return startOf(new Date(`${text}T12:00:00`))
}

function plusDays(date: Date, days: number): Date {
  return new Date(date.getFullYear(), date.getMonth(), date.getDate() + days)
}

function earlier(one: Date, other: Date): Date {
  return one < other ? one : other
}
