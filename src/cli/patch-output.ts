import type { DiskComparison } from '../../sdk/src/index.ts'
import { cut, oneLine, padded, printable, styled, widthOf } from './output.ts'

export type Compared = Pick<DiskComparison, 'files' | 'addedLines' | 'removedLines' | 'isCut'>

/** A longer line is printed in parts. */
const partCharacters = 64 * 1024
/** SGR, as git has them: bold, cyan, green, red. */
const styles = { head: '1', hunk: '36', added: '32', removed: '31' } as const

/**
 * A unified diff as a terminal shows it, with the colours of git; what files hold does not steer the terminal. What is not for a terminal is
 * passed on as it is, so that `git apply` takes it.
 */
export async function* patchText(
  patch: AsyncIterable<Uint8Array>,
  { isTerminal, hasColors }: { isTerminal: boolean; hasColors: boolean },
): AsyncGenerator<string | Uint8Array> {
  if (!isTerminal) return yield* patch
  const decoder = new TextDecoder()
  const lines = new PatchLines()
  const shown = (text: string) => {
    const safe = printable(text)
    return hasColors && lines.style !== '' && safe !== '' ? styled(lines.style, safe) : safe
  }
  let rest = ''
  for await (const piece of patch) {
    const whole = (rest + decoder.decode(piece, { stream: true })).split('\n')
    rest = whole.pop() ?? ''
    for (const line of whole) {
      lines.begin(line)
      yield `${shown(line)}\n`
      lines.end()
    }
    if (rest.length < partCharacters) continue
    lines.begin(rest)
    yield shown(rest)
    rest = ''
  }
  rest += decoder.decode()
  if (rest === '') return
  lines.begin(rest)
  yield `${shown(rest)}\n`
}

/** What each line of a diff is: within a hunk its first character says so, and the head of the hunk says how many lines it has. */
class PatchLines {
  style: string = styles.head
  #isInLine = false
  #earlier = 0
  #later = 0

  /** Called with the beginning of each line, and with its further parts. */
  begin(line: string): void {
    if (this.#isInLine) return
    this.#isInLine = true
    this.style = this.#styleOf(line)
  }

  end(): void {
    this.#isInLine = false
  }

  #styleOf(line: string): string {
    if (this.#earlier > 0 || this.#later > 0) {
      const [first = ' '] = line
      if (first === '\\') return ''
      if (first !== '+') this.#earlier -= 1
      if (first !== '-') this.#later -= 1
      return first === '+' ? styles.added : first === '-' ? styles.removed : ''
    }
    const [, earlier, later] = /^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@/.exec(line.slice(0, 200)) ?? []
    if (!line.startsWith('@@ ')) return line.startsWith('\\') ? '' : styles.head
    this.#earlier = Number(earlier ?? 1)
    this.#later = Number(later ?? 1)
    return styles.hunk
  }
}

/** Cells of the signs behind a file. */
const signsMax = 40

/** The files of a comparison with their lines, as `git diff --stat` prints them; empty when none differs. */
export function statText(
  { files, addedLines, removedLines, isCut }: Compared,
  { widthMax = Infinity, hasColors = false }: { widthMax?: number; hasColors?: boolean } = {},
): string {
  if (files.length === 0) return ''
  const named = files.map((file) => {
    const path = oneLine(file.path)
    return { ...file, name: file.oldPath === undefined ? path : `${oneLine(file.oldPath)} => ${path}` }
  })
  const most = Math.max(...files.map((file) => file.addedLines + file.removedLines))
  const digits = String(most).length
  const needed = Math.max(...named.map(({ name }) => widthOf(name)))
  const names = Math.min(needed, Math.max(20, widthMax - digits - 6 - Math.min(most, signsMax)))
  const signs = Math.max(8, Math.min(signsMax, widthMax - names - digits - 6))
  const paint = (style: string, text: string) => (hasColors && text !== '' ? styled(style, text) : text)
  const rows = named.map((file) => {
    const count = file.addedLines + file.removedLines
    const scale = (lines: number) =>
      lines === 0 || most <= signs ? lines : Math.max(1, Math.floor((lines * signs) / most))
    const drawn =
      paint(styles.added, '+'.repeat(scale(file.addedLines))) +
      paint(styles.removed, '-'.repeat(scale(file.removedLines)))
    const name = padded(cut(file.name, names), names)
    return ` ${name} | ${file.isBinary ? 'Bin' : `${String(count).padStart(digits)} ${drawn}`.trimEnd()}`
  })
  const total = [
    `${files.length}${isCut ? ' and more' : ''} file${files.length === 1 && !isCut ? '' : 's'} changed`,
    ...(addedLines === 0 ? [] : [`${addedLines} insertion${addedLines === 1 ? '' : 's'}(+)`]),
    ...(removedLines === 0 ? [] : [`${removedLines} deletion${removedLines === 1 ? '' : 's'}(-)`]),
  ]
  return [...rows, ` ${total.join(', ')}`].join('\n')
}
