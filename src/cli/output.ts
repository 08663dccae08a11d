import { once } from 'node:events'

/** Writes data and waits while the reader is slower. */
export async function write(data: string | Uint8Array): Promise<void> {
  if (!process.stdout.write(data)) await once(process.stdout, 'drain')
}

export async function writeLine(text: string): Promise<void> {
  await write(`${text}\n`)
}

export async function writeJson(value: unknown): Promise<void> {
  await writeLine(JSON.stringify(value))
}

/** A next step, for a person at a terminal. */
export function hint(text: string): void {
  if (process.stdout.isTTY && process.stderr.isTTY) note(text)
}

/** A fact beside the data. */
export function note(text: string): void {
  process.stderr.write(`${colored('2', printable(text), process.stderr.isTTY)}\n`)
}

export function bold(text: string): string {
  return colored('1', text, process.stdout.isTTY)
}

function colored(style: string, text: string, isTerminal: boolean): string {
  return isTerminal && !process.env['NO_COLOR'] ? `\x1b[${style}m${text}\x1b[0m` : text
}

/** Remote text without control characters, which would steer the terminal. Line ends and tabs stay. */
export function printable(text: string): string {
  // eslint-disable-next-line no-control-regex
  return text.replaceAll(/[\x00-\x08\x0b-\x1f\x7f-\x9f]/g, (character) => {
    return `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`
  })
}

/** Lines of aligned columns. A cell keeps to its line. */
export function columns(header: readonly string[], rows: readonly (readonly unknown[])[]): string {
  const cells = [header, ...rows].map((row) => row.map((cell) => oneLine(cell)))
  const widths = header.map((_name, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)))
  return cells
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .map((line, index) => (index === 0 ? bold(line) : line))
    .join('\n')
}

function oneLine(cell: unknown): string {
  if (cell === undefined || cell === null || cell === '') return '-'
  const text = typeof cell === 'string' ? cell : JSON.stringify(cell)
  return printable(text.replaceAll(/[\n\t]+/g, ' '))
}
