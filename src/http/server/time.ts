/** The sandbox API tells time to the second (docs/use/api.md § Conventions). */
export function seconds(date: Date): string
export function seconds(date: Date | undefined): string | null
export function seconds(date: Date | undefined): string | null {
  return date === undefined ? null : `${date.toISOString().slice(0, 19)}Z`
}

/** The Sessions API tells time to the millisecond. */
export function milliseconds(date: Date): string {
  return date.toISOString()
}

/** A time that a sandbox reported. It is hostile: what is no time becomes the epoch. */
export function reportedSeconds(text: string): string {
  const date = new Date(text)
  const year = date.getUTCFullYear()
  return seconds(year >= 0 && year <= 9999 ? date : new Date(0))
}
