import type { BuildEvent } from 'atoll-sdk'

export interface LogLine {
  kind: 'told' | 'stdout' | 'stderr'
  text: string
  /** Characters of it that were left out. */
  cut: number
}

/** What is drawn. The lines are those of the log itself, which go on changing. */
export interface LogView {
  lines: readonly LogLine[]
  /** Lines that were left out at the beginning. */
  dropped: number
  /** Characters of the longest line. */
  widest: number
}

/** A line that has not ended, and what of a sequence of the terminal is still to come. */
interface OpenLine {
  line: LogLine | undefined
  held: string
}

const linesMax = 10_000
const charsMax = 4_000_000
const lineCharsMax = 2000
/** Dropping moves all lines, so many are dropped at once. */
const droppedShare = 0.1
const heldMax = 4096
const drawnEveryMs = 100

/** CSI, OSC, the other strings, and escapes of two characters (ECMA-48). */
const sequences =
  // oxlint-disable-next-line no-control-regex -- they are what is looked for
  /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[P^_X][^\u001b]*\u001b\\|[ -/]*[0-OQ-WYZ\\`-~])/g
/** One that has not ended, or a carriage return whose line feed may follow. */
// oxlint-disable-next-line no-control-regex -- likewise
const unfinished = /(?:\r|\u001b(?:\[[0-?]*[ -/]*|\][^\u0007\u001b]*\u001b?|[P^_X][^\u001b]*\u001b?|[ -/]*))$/
/** How the server marks what it tells of a step: `[1/3]`, `[web 2/5]`. */
const position = /^\[(?:\S+ )?\d+\/\d+\]/

/**
 * The log of a build as lines of text, without sequences of the terminal and with what carriage returns have overwritten left out. Only the newest lines
 * are kept. What comes is drawn a few times a second, however much it is.
 */
export class LogLines {
  readonly #lines: LogLine[] = []
  readonly #open = new Map<string, OpenLine>()
  readonly #listeners = new Set<() => void>()
  #chars = 0
  #dropped = 0
  #widest = 0
  #view: LogView = { lines: this.#lines, dropped: 0, widest: 0 }
  #drawing: ReturnType<typeof setTimeout> | undefined

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  readonly view = (): LogView => this.#view

  take(event: BuildEvent): void {
    if (event.event === 'build_output') return this.#write(`${event.step} ${event.stream}`, event.stream, event.data)
    // What the steps have begun stands where it is.
    this.#open.clear()
    this.#write('told', 'told', `${event.message}\n`)
  }

  /** A part of the log as the server keeps it. */
  takeText(text: string): void {
    this.#write('text', 'stdout', text)
  }

  #write(key: string, kind: LogLine['kind'], data: string): void {
    const open: OpenLine = this.#open.get(key) ?? { line: undefined, held: '' }
    this.#open.set(key, open)
    const text = (open.held + data).replace(sequences, '')
    const [end = ''] = unfinished.exec(text.slice(-heldMax)) ?? []
    open.held = end
    const parts = text
      .slice(0, text.length - end.length)
      .replaceAll('\r\n', '\n')
      .split('\n')
    for (const [index, part] of parts.entries()) {
      this.#extend(open, kind, part)
      if (index === parts.length - 1) break
      // An empty line has no characters that would begin it.
      if (open.line === undefined) this.#begin(kind)
      open.line = undefined
    }
    this.#dropOldest()
    this.#draw()
  }

  #extend(open: OpenLine, kind: LogLine['kind'], part: string): void {
    if (part === '') return
    const line = (open.line ??= this.#begin(kind))
    const from = part.lastIndexOf('\r') + 1
    if (from > 0) {
      this.#chars -= line.text.length
      line.text = ''
      line.cut = 0
    }
    const added = part.slice(from)
    const taken = added.slice(0, lineCharsMax - line.text.length)
    line.text += taken
    line.cut += added.length - taken.length
    if (line.kind === 'stdout' && position.test(line.text)) line.kind = 'told'
    this.#chars += taken.length
    this.#widest = Math.max(this.#widest, line.text.length)
  }

  #begin(kind: LogLine['kind']): LogLine {
    const line: LogLine = { kind, text: '', cut: 0 }
    this.#lines.push(line)
    return line
  }

  #dropOldest(): void {
    while (this.#lines.length > linesMax || this.#chars > charsMax) {
      const dropped = this.#lines.splice(0, Math.max(1, Math.floor(this.#lines.length * droppedShare)))
      this.#dropped += dropped.length
      for (const open of this.#open.values()) {
        if (open.line !== undefined && dropped.includes(open.line)) open.line = undefined
      }
      this.#chars -= dropped.reduce((sum, { text }) => sum + text.length, 0)
    }
  }

  #draw(): void {
    if (this.#drawing !== undefined) return
    this.#drawing = setTimeout(() => {
      this.#drawing = undefined
      this.#view = { lines: this.#lines, dropped: this.#dropped, widest: this.#widest }
      for (const listener of this.#listeners) listener()
    }, drawnEveryMs)
  }
}
