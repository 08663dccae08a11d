import { once } from 'node:events'
import { relativeTime } from './units.ts'

/** A column that is cut keeps so much. */
const cellMin = 8
const gap = 2

/** Writes data and waits while the reader is slower. */
export async function write(data: string | Uint8Array): Promise<void> {
  if (!process.stdout.write(data)) await once(process.stdout, 'drain')
}

export async function writeLine(text: string): Promise<void> {
  await write(`${text}\n`)
}

export async function writeJson(value: unknown): Promise<void> {
  await writeLine(jsonText(value))
}

/** JSON of the same meaning whose strings do not steer a terminal: what JSON leaves as it is of `unprintable` is escaped. */
export function jsonText(value: unknown): string {
  return JSON.stringify(value).replaceAll(unprintable, (character) => `\\u${hex(character).padStart(4, '0')}`)
}

/** A next step, for a person at a terminal. */
export function hint(text: string): void {
  if (process.stdout.isTTY && process.stderr.isTTY) note(text)
}

/** A fact beside the data. */
export function note(text: string): void {
  clearStatus()
  process.stderr.write(`${colored('2', printable(text), process.stderr.isTTY)}\n`)
}

let hasStatus = false

/** Draws the last line of standard error anew, which must be a terminal. What is written next replaces it. */
export function drawStatus(text: string): void {
  hasStatus = true
  process.stderr.write(`\r${cut(printable(text), (process.stderr.columns || 80) - 1)}\x1b[K`)
}

/** Removes the line of `drawStatus`, if there is one. */
export function clearStatus(): void {
  if (hasStatus) process.stderr.write('\r\x1b[K')
  hasStatus = false
}

export function bold(text: string): string {
  return colored('1', text, process.stdout.isTTY)
}

function colored(style: string, text: string, isTerminal: boolean): string {
  return isTerminal && !process.env['NO_COLOR'] ? styled(style, text) : text
}

/** Whether what is written to standard output may have colours. */
export function hasColors(): boolean {
  return process.stdout.isTTY && !process.env['NO_COLOR']
}

/** A text in the style of these parameters (ECMA-48, SGR). */
export function styled(style: string, text: string): string {
  return `\x1b[${style}m${text}\x1b[0m`
}

/** Characters that would steer the terminal or turn the order of what stands beside them, without line ends and tabs. */
// eslint-disable-next-line no-control-regex
const unprintable = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g

/** Remote text without such characters. */
export function printable(text: string): string {
  return text.replaceAll(unprintable, (character) => {
    const digits = hex(character)
    return digits.length > 2 ? `\\u${digits}` : `\\x${digits.padStart(2, '0')}`
  })
}

function hex(character: string): string {
  return character.charCodeAt(0).toString(16)
}

/** A time in a list: `3 min ago` on a terminal, exact for everything else that reads it. */
export function when(time: string | null | undefined): string | undefined {
  if (time === null || time === undefined) return undefined
  return process.stdout.isTTY ? relativeTime(time) : time
}

/**
 * Lines of aligned columns. A cell keeps to its line. Beyond `widthMax`, by default the width of the terminal, the widest columns are cut; never
 * the first, which names the row. Nothing is cut where standard output is no terminal.
 */
export function columns(
  header: readonly string[],
  rows: readonly (readonly unknown[])[],
  widthMax = process.stdout.isTTY ? process.stdout.columns || Infinity : Infinity,
): string {
  const cells = [header, ...rows].map((row) => row.map((cell) => oneLine(cell)))
  const needed = header.map((_name, column) =>
    cells.reduce((width, row) => Math.max(width, widthOf(row[column] ?? '')), 0),
  )
  const widths = fitted(needed, widthMax)
  return cells
    .map((row) =>
      row
        .map((cell, column) => padded(cut(cell, widths[column] ?? 0), widths[column] ?? 0))
        .join(' '.repeat(gap))
        .trimEnd(),
    )
    .map((line, index) => (index === 0 ? bold(line) : line))
    .join('\n')
}

function fitted(needed: readonly number[], widthMax: number): number[] {
  const widths = [...needed]
  for (;;) {
    const excess = widths.reduce((sum, width) => sum + width + gap, -gap) - widthMax
    const [widest = 0, second = 0] = widths.slice(1).toSorted((one, other) => other - one)
    if (excess <= 0 || widest <= cellMin) return widths
    // Down to the next widest at once, which is then cut with it.
    const less = Math.min(excess, Math.max(1, widest - Math.max(second, cellMin)))
    widths[widths.lastIndexOf(widest)] = widest - less
  }
}

/** A cell of a list: remote text without line ends and such characters; `-` for nothing. */
export function oneLine(cell: unknown): string {
  if (cell === undefined || cell === null || cell === '') return '-'
  const text = typeof cell === 'string' ? cell : JSON.stringify(cell)
  return printable(text.replaceAll(/[\n\t]+/g, ' '))
}

/** Characters of two cells: those of East Asia and most pictures. */
const wide =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u
/** Characters that are drawn upon the one before. */
const combining = /[\p{Mn}\p{Me}\u200b-\u200d]/u

/** The cells of a terminal that a text takes. */
export function widthOf(text: string): number {
  // Printable ASCII, as nearly everything is.
  if (/^[ -~]*$/.test(text)) return text.length
  let width = 0
  for (const character of text) width += combining.test(character) ? 0 : wide.test(character) ? 2 : 1
  return width
}

/** A text of at most so many cells. */
export function cut(text: string, width: number): string {
  if (widthOf(text) <= width) return text
  let kept = ''
  let left = width - 1
  for (const character of text) {
    left -= widthOf(character)
    if (left < 0) break
    kept += character
  }
  return `${kept}…`
}

export function padded(text: string, width: number): string {
  return text + ' '.repeat(Math.max(0, width - widthOf(text)))
}
