import type { RewoundRow, Row } from './rows.ts'

/** Events that are not of the branch in force: a rewind has left them. Both ends are included. */
export interface LeftRange {
  from: number
  to: number
  /** The number of that rewind. */
  by: number
}

/**
 * Of a list of rewinds, oldest first. Walks back from the newest event: before a rewind comes the event to which it went, so what lies between the two
 * is left, and rewinds in there count no more. A later rewind may lead into such a stretch, which is then in force again.
 */
export function leftRangesOf(rewinds: readonly RewoundRow[]): LeftRange[] {
  const ranges: LeftRange[] = []
  let newest = Number.POSITIVE_INFINITY
  for (const { event, rewound } of rewinds.toReversed()) {
    // The conversation is that of before.
    if (event > newest || rewound.what === 'machine') continue
    newest = rewound.to_event
    if (event - newest > 1) ranges.unshift({ from: newest + 1, to: event - 1, by: event })
  }
  return ranges
}

/** The stretch that a row was left with. */
export function rangeOf(ranges: readonly LeftRange[], row: Row | LeftGroup): LeftRange | undefined {
  const range = row.kind === 'left' ? undefined : rangeAt(ranges, row.event)
  return range !== undefined && isOfPoint(row, range) ? undefined : range
}

export function rangeAt(ranges: readonly LeftRange[], event: number): LeftRange | undefined {
  return ranges.find(({ from, to }) => event >= from && event <= to)
}

/** Stands in place of the rows that a rewind has left. */
export interface LeftGroup {
  kind: 'left'
  key: string
  event: number
  revision: number
  range: LeftRange
  /** Messages among them. */
  messageCount: number
  isOpen: boolean
}

/** What is drawn: the rows, with a group in place of what was left; those of an open group follow it. */
export function withGroups(
  rows: readonly Row[],
  ranges: readonly LeftRange[],
  isOpen: (by: number) => boolean,
): readonly (Row | LeftGroup)[] {
  if (ranges.length === 0) return rows
  const items: (Row | LeftGroup)[] = []
  let group: LeftGroup | undefined
  for (const row of rows) {
    const range = rangeOf(ranges, row)
    if (range === undefined) {
      items.push(row)
      continue
    }
    if (group?.range !== range) {
      const { by } = range
      group = {
        kind: 'left',
        key: `left${by}`,
        event: row.event,
        revision: 0,
        range,
        messageCount: 0,
        isOpen: isOpen(by),
      }
      items.push(group)
    }
    if (row.kind === 'user') group.messageCount += 1
    if (group.isOpen) items.push(row)
  }
  return items
}

/** The checkpoint to which the rewind went is told after the event that it names. */
function isOfPoint(row: Row | LeftGroup, { from }: LeftRange): boolean {
  return row.kind === 'checkpoint' && row.checkpoint.after_event < from
}
