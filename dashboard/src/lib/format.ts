/** Numbers and times as a reader in this browser writes them. Times are in the zone of the browser. */

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'] as const

/** `1.5 GiB`. */
export function formatBytes(bytes: number): string {
  let value = bytes
  let unit = 0
  while (Math.abs(value) >= 1024 && unit < units.length - 1) {
    value /= 1024
    unit += 1
  }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1).replace(/\.0$/, '')} ${units[unit] ?? 'B'}`
}

const steps: readonly (readonly [seconds: number, unit: string])[] = [
  [86_400, 'd'],
  [3600, 'h'],
  [60, 'min'],
  [1, 's'],
]

/** The two largest units of a duration: `2 h 5 min`, `340 ms`. */
export function formatSeconds(seconds: number): string {
  if (seconds < 1) return `${Math.max(0, Math.round(seconds * 1000))} ms`
  const index = steps.findIndex(([size]) => seconds >= size)
  const [size, unit] = steps[index] ?? [1, 's']
  const whole = Math.floor(seconds / size)
  const next = steps[index + 1]
  const rest = next === undefined ? 0 : Math.floor((seconds - whole * size) / next[0])
  return rest > 0 && next !== undefined ? `${whole} ${unit} ${rest} ${next[1]}` : `${whole} ${unit}`
}

/** `$0.0042`: small amounts keep two digits that say something. */
export function formatUsd(amount: number): string {
  if (amount === 0) return '$0'
  const digits = Math.abs(amount) >= 1 ? 2 : Math.min(6, 1 - Math.floor(Math.log10(Math.abs(amount))))
  return `$${amount.toFixed(Math.max(2, digits))}`
}

const count = new Intl.NumberFormat()
export const formatCount = (value: number): string => count.format(value)

const day = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' })

/** The whole time in the reader's zone; the text itself where it is no time. */
export function formatTime(time: string | Date): string {
  const date = new Date(time)
  return Number.isNaN(date.getTime()) ? String(time) : day.format(date)
}

/** At most `charsMax` characters, with `…` in the middle. */
export function shorten(text: string, charsMax = 40): string {
  if (text.length <= charsMax) return text
  const half = Math.floor((charsMax - 1) / 2)
  return `${text.slice(0, charsMax - 1 - half)}…${text.slice(-half)}`
}
