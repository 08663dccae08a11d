/** Marks on one character. More is no writing of any language, and a cell of the screen would grow without a bound. */
const marksMax = 16
// Cf has the joiners and variation tags, U+1160 to U+11FF the Jamo that xterm draws over the cell before.
const mark = String.raw`[\p{M}\p{Cf}\u1160-\u11ff]`
const longRuns = new RegExp(`(${mark}{${marksMax}})${mark}+`, 'gu')
const firstRun = new RegExp(`^${mark}+`, 'u')
const lastRun = new RegExp(`${mark}+$`, 'u')
/** They would show the rest of a line in another order than it has. */
const directions = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g
// eslint-disable-next-line no-control-regex
const ascii = /^[\0-\x7f]*$/

/** Turns output into the text of a screen, piece by piece: bytes that are no UTF-8 become U+FFFD, and what would harm the page is left out. */
export class ScreenText {
  readonly #decoder = new TextDecoder()
  /** Marks at the end of the piece before, at most {@link marksMax}. */
  #marks = 0

  /** The text of the next bytes. Half a character waits for its rest. */
  take(bytes: Uint8Array): string {
    const text = this.#decoder.decode(bytes, { stream: true })
    if (ascii.test(text)) {
      if (text !== '') this.#marks = 0
      return text
    }
    return this.#bounded(text.replaceAll(directions, ''))
  }

  #bounded(text: string): string {
    const first = Array.from(firstRun.exec(text)?.[0] ?? '')
    // The run of the piece before goes on in this one.
    const left = Math.max(0, this.#marks + first.length - marksMax)
    const kept = left === 0 ? text : text.slice(first.slice(0, left).join('').length)
    const bounded = kept.replaceAll(longRuns, '$1')
    const last = lastRun.exec(bounded)?.[0] ?? ''
    const isRunAlone = last.length === bounded.length
    this.#marks = Math.min(marksMax, (isRunAlone ? this.#marks : 0) + Array.from(last).length)
    return bounded
  }
}
