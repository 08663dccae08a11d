/** What the address of the page about usage says: the window, the filter, and what is drawn. */

export const ranges = ['7d', '30d', '90d', 'month'] as const
export type Range = (typeof ranges)[number]
export const rangeDefault: Range = '30d'

export const measures = ['cost', 'memory', 'cpu', 'disk', 'network', 'tokens'] as const
export type Measure = (typeof measures)[number]

export interface UsageSearch {
  range?: Range
  /** The first and the last day, `YYYY-MM-DD`, in the reader's zone. */
  from?: string
  to?: string
  /** Absent: money where anything has a price, else memory. */
  measure?: Measure
  /** `sandbox`, `session`, `key` or `tag:<key>`. */
  by?: string
  /** `key=value,other`, or `key` for sandboxes without it. */
  tag?: string
}

/** The API's filter by tag; undefined: none. */
export function tagsOf(tag: string | undefined): Record<string, string[]> | undefined {
  if (tag === undefined) return undefined
  const at = tag.indexOf('=')
  if (at === -1) return { [tag]: [] }
  const values = tag
    .slice(at + 1)
    .split(',')
    .filter((value) => value !== '')
  return at === 0 ? undefined : { [tag.slice(0, at)]: values }
}
