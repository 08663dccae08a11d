const steps = ['B', 'kB', 'MB', 'GB', 'TB'] as const
const minute = 60
const hour = 60 * minute
const day = 24 * hour
/** A date says more than a number of days beyond this. */
const relativeDaysMax = 60

/** `2.5 MB`. */
export function sizeText(bytes: number): string {
  let value = bytes
  let unit = 0
  while (value >= 1000 && unit < steps.length - 1) {
    value /= 1000
    unit += 1
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${steps[unit]}`
}

/** `12.1k tok`. */
export function tokenText(tokens: number): string {
  if (tokens < 1000) return `${tokens} tok`
  const [value, unit] = tokens < 999_950 ? [tokens / 1000, 'k'] : [tokens / 1_000_000, 'M']
  return `${value >= 99.95 ? Math.round(value) : value.toFixed(1)}${unit} tok`
}

/** `$0.031`: at least two digits of it. */
export function costText(usd: number): string {
  return `$${usd.toFixed(usd >= 1 || usd === 0 ? 2 : usd >= 0.01 ? 3 : 4)}`
}

/** `3 min`: the largest unit in which it is one or more. */
export function durationText(seconds: number): string {
  if (seconds < minute) return `${Math.floor(seconds)} s`
  if (seconds < hour) return `${Math.floor(seconds / minute)} min`
  if (seconds < 2 * day) return `${Math.floor(seconds / hour)} h`
  return `${Math.floor(seconds / day)} d`
}

/** `3 min ago`, `in 2 h`, and the date of what is far away. */
export function relativeTime(time: string, nowMs = Date.now()): string {
  const seconds = (nowMs - Date.parse(time)) / 1000
  if (Number.isNaN(seconds)) return time
  if (Math.abs(seconds) > relativeDaysMax * day) return time.slice(0, 'YYYY-MM-DD'.length)
  if (Math.abs(seconds) < 1) return 'now'
  return seconds < 0 ? `in ${durationText(-seconds)}` : `${durationText(seconds)} ago`
}
