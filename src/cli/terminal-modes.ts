/** Modes that programs set and that would trouble the terminal after them: cursor, mouse, other screen, pasting. */
const modeSequence = /\x1b\[\?([\d;]+)([hl])/g // eslint-disable-line no-control-regex
const watched = new Set(['1', '25', '47', '1000', '1002', '1003', '1004', '1006', '1047', '1049', '2004'])
/** The cursor is shown unless a program hides it. */
const hideCursor = '25'
const tailMax = 16

/** The modes of a terminal that remote output has changed. */
export class TerminalModes {
  readonly #changed = new Map<string, 'h' | 'l'>()
  #hasOutput = false
  /** A sequence may come in two pieces. */
  #tail = ''

  see(bytes: Uint8Array): void {
    this.#hasOutput = true
    const text = this.#tail + Buffer.from(bytes).toString('latin1')
    for (const [, modes = '', set] of text.matchAll(modeSequence)) {
      for (const mode of modes.split(';')) if (watched.has(mode)) this.#note(mode, set as 'h' | 'l')
    }
    const start = text.lastIndexOf('\x1b')
    this.#tail = start !== -1 && text.length - start < tailMax ? text.slice(start) : ''
  }

  /** The sequences that restore the terminal. */
  reset(): string {
    const sequences = [...this.#changed].map(([mode, set]) => `\x1b[?${mode}${set === 'h' ? 'l' : 'h'}`)
    this.#changed.clear()
    return this.#hasOutput ? `${sequences.join('')}\x1b[0m` : ''
  }

  #note(mode: string, set: 'h' | 'l'): void {
    const isInitial = mode === hideCursor ? set === 'h' : set === 'l'
    if (isInitial) this.#changed.delete(mode)
    else this.#changed.set(mode, set)
  }
}
