import type { TurnInfo } from '../../../sdk/src/index.ts'
import { type Drawing, gap, painter, shortened, widthOfAll } from '../drawing.ts'
import { cut, oneLine, padded, widthOf } from '../output.ts'
import { costText, tokenText } from '../units.ts'

/** A turn, or a session that was forked at the end of one. */
interface Row {
  /** The lines that lead to it. */
  lead: string
  symbol: string
  /** Of the event with which the turn ends: `rewind` and `fork --at` take it. */
  number: string
  time: string
  text: string
  /** Never cut. */
  mark: string
  cells: readonly Cell[]
  isLeft: boolean
}

interface Cell {
  text: string
  /** SGR. */
  style: string
}

/** Least cells of what was said, with all before it: columns behind it give way first. */
const textsMin = 40
/** SGR. */
const styles = { dim: '2', green: '32', red: '31', cyan: '36', yellow: '33' }

/**
 * The turns of a session, which come newest first, a line each and oldest first: ◆ with a checkpoint of disk and memory, ◇ of the disk alone,
 * · without. Behind the message: lines, tokens and cost. Sessions that were forked at the end of a turn (● or ○) and turns that a rewind has
 * left branch off. What stands in messages and names does not steer the terminal.
 */
export function timelineText(turns: readonly TurnInfo[], drawing: Drawing = {}): string {
  const { widthMax = Infinity, hasColors = false, isExact = false, nowMs = Date.now() } = drawing
  const oldestFirst = turns.toReversed()
  const time = isExact ? (at: string) => at : clockOf(oldestFirst, nowMs)
  const rows = [...rowsOf(oldestFirst, time, isExact)]
  const [numbers, times] = [widthOfAll(rows.map((row) => row.number)), widthOfAll(rows.map((row) => row.time))]
  const beginning = ({ symbol, number, time: at }: Row) =>
    at === '' ? `${symbol} ` : `${symbol} ${number.padStart(numbers)}  ${padded(at, times)}  `
  const columns = (rows.find(({ cells }) => cells.length > 0)?.cells ?? []).map((_cell, index) =>
    widthOfAll(rows.map(({ cells }) => cells[index]?.text ?? '')),
  )
  const needed = widthOfAll(rows.map((row) => `${row.lead}${beginning(row)}${row.text}${row.mark}`))
  const shown = shownColumns(columns, widthMax - Math.min(needed, textsMin))
  const texts = Math.min(needed, widthMax - widthOfColumns(shown))
  const paint = painter(hasColors)
  return rows
    .map((row) => {
      const lead = shortened(row.lead, Math.floor(texts / 4))
      const begin = beginning(row)
      const left = Math.max(1, texts - widthOf(lead + begin + row.mark))
      const text = cut(row.text, left)
      const cells = shown.map((width, index) => {
        const { text: cell = '', style = '' } = row.cells[index] ?? {}
        return width === 0 ? '' : gap + ' '.repeat(width - widthOf(cell)) + paint(row.isLeft ? '' : style, cell)
      })
      const rest = padded('', texts - widthOf(lead + begin + text + row.mark))
      if (row.isLeft) return paint(styles.dim, (lead + begin + text + row.mark + rest + cells.join('')).trimEnd())
      const shownBegin =
        paint(row.time === '' ? '' : styles.cyan, begin.slice(0, 1)) + paint(styles.dim, begin.slice(1))
      const line = paint(styles.dim, lead) + shownBegin + text + paint(styles.yellow, row.mark) + rest
      return (line + cells.join('')).trimEnd()
    })
    .join('\n')
}

function widthOfColumns(columns: readonly number[]): number {
  return columns.reduce((sum, width) => sum + (width === 0 ? 0 : gap.length + width), 0)
}

/** Tokens give way first, then the cost, then lines. */
function shownColumns([added = 0, removed = 0, tokens = 0, cost = 0, id = 0]: readonly number[], widthMax: number) {
  const choices = [
    [added, removed, tokens, cost, id],
    [added, removed, 0, cost, id],
    [added, removed, 0, 0, id],
  ]
  return choices.find((columns) => widthOfColumns(columns) <= widthMax) ?? [0, 0, 0, 0, id]
}

/** Times of one day are clock times. */
function clockOf(turns: readonly TurnInfo[], nowMs: number): (time: string) => string {
  const two = (value: number) => String(value).padStart(2, '0')
  const dayOf = (date: Date) => `${two(date.getMonth() + 1)}-${two(date.getDate())}`
  const isOneDay = turns.every(({ startedAt }) => new Date(startedAt).toDateString() === new Date(nowMs).toDateString())
  return (time) => {
    const date = new Date(time)
    const clock = `${two(date.getHours())}:${two(date.getMinutes())}`
    return isOneDay ? clock : `${dayOf(date)} ${clock}`
  }
}

interface Lead {
  first: string
  rest: string
}

function* rowsOf(turns: readonly TurnInfo[], time: (at: string) => string, isExact: boolean): Generator<Row> {
  const ids = new Set(turns.map(({ messageId }) => messageId))
  const parentOf = ({ parentMessageId }: TurnInfo) =>
    parentMessageId !== null && ids.has(parentMessageId) ? parentMessageId : null
  const children = Map.groupBy(turns, parentOf)
  const roots = children.get(null) ?? []
  // What has left the whole page behind stands before the branch in force.
  for (const root of roots.toSorted((one, other) => Number(other.left) - Number(one.left)))
    yield* branchOf(root, { first: '', rest: '' })

  /** A turn, those after it in its branch, and what branches off. */
  function* branchOf(start: TurnInfo, { first, rest }: Lead): Generator<Row> {
    let turn: TurnInfo | undefined = start
    let lead = first
    while (turn !== undefined) {
      yield rowOf(turn, { lead, time, isExact, isBegin: turn === start })
      const below: TurnInfo[] = children.get(turn.messageId) ?? []
      const next: TurnInfo | undefined = below.find(({ left }) => !left) ?? (turn.left ? below.at(-1) : undefined)
      const sides = [...below.filter((one) => one !== next), ...turn.forks, ...(turn.forksCut ? [undefined] : [])]
      for (const [index, side] of sides.entries()) {
        const isEnd = next === undefined && index === sides.length - 1
        const inner = { first: `${rest}${isEnd ? '└─' : '├─'}`, rest: `${rest}${isEnd ? '  ' : '│ '}` }
        if (side !== undefined && 'messageId' in side) yield* branchOf(side, inner)
        else yield forkRowOf(side, inner.first)
      }
      turn = next
      lead = rest
    }
  }
}

function rowOf(
  turn: TurnInfo,
  { lead, time, isExact, isBegin }: { lead: string; time: (at: string) => string; isExact: boolean; isBegin: boolean },
): Row {
  const { checkpoint, lastEvent, startedAt, message, usage, files, left, messageId } = turn
  const marks = [...(left && isBegin ? ['left'] : []), ...endOf(turn)]
  const lines = (sign: string, count: number) => (files === null || files.files.length === 0 ? '' : `${sign}${count}`)
  return {
    lead,
    symbol: checkpoint === null ? '·' : checkpoint.kind === 'full' ? '◆' : '◇',
    number: lastEvent === null ? '' : String(lastEvent),
    time: time(startedAt),
    text: oneLine(message.trim()),
    mark: marks.map((mark) => ` (${mark})`).join(''),
    cells: [
      { text: lines('+', files?.addedLines ?? 0), style: styles.green },
      { text: lines('-', files?.removedLines ?? 0), style: styles.red },
      { text: tokenText(usage.inputTokens + usage.outputTokens), style: styles.dim },
      { text: usage.totalCostUsd === undefined ? '' : costText(usage.totalCostUsd), style: '' },
      { text: isExact ? messageId : '', style: '' },
    ],
    isLeft: left,
  }
}

function endOf({ endedAt, result }: TurnInfo): string[] {
  if (endedAt === null) return ['runs']
  if (result === 'success') return []
  if (result === 'interrupted') return ['interrupted']
  return [result === 'error_max_turns' ? 'too many calls' : 'failed']
}

/** Undefined: those that are not listed. */
function forkRowOf(fork: TurnInfo['forks'][number] | undefined, lead: string): Row {
  const common = { lead, number: '', time: '', cells: [], isLeft: false }
  if (fork === undefined) return { ...common, symbol: '…', text: 'and more', mark: '' }
  const { id, name, status, activity, archivedReason } = fork
  return {
    ...common,
    symbol: status === 'ended' ? '○' : '●',
    text: `fork ${oneLine(name ?? id)}`,
    mark: ` (${archivedReason === undefined ? activity : `${activity}, archived`})`,
  }
}
