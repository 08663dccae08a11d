import { draftCharactersMax, draftPieceCharactersMax, type AgentEventOf } from '../protocol/agent.ts'

/** A person sees text grow at this pace; each piece is a line of the protocol. */
const pauseMs = 50

/**
 * Tells what the model has written of the answer that it is writing. The whole answer follows as an `assistant` event, so a piece may be left
 * out: what is beyond `draftCharactersMax`, and what the answer has come before.
 */
export class Draft {
  readonly #emit: (event: AgentEventOf<'assistant_draft'>) => void
  readonly #heldBack: (text: string) => number
  #offset = 0
  #waiting = ''
  #timer: NodeJS.Timeout | undefined

  /** `heldBack`: how many characters at the end of a text must wait for those that follow. */
  constructor(emit: (event: AgentEventOf<'assistant_draft'>) => void, heldBack: (text: string) => number = () => 0) {
    this.#emit = emit
    this.#heldBack = heldBack
  }

  /** Another answer begins, or none follows. */
  restart(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#offset = 0
    this.#waiting = ''
  }

  add(text: string): void {
    const left = draftCharactersMax - this.#offset - this.#waiting.length
    this.#waiting += text.slice(0, left)
    if (this.#waiting !== '') this.#timer ??= setTimeout(() => this.#tell(), pauseMs).unref()
  }

  /** A part of the answer ends, and another one follows it. */
  breakLine(): void {
    if (this.#offset > 0 || this.#waiting !== '') this.add('\n\n')
  }

  #tell(): void {
    this.#timer = undefined
    let end = Math.min(this.#waiting.length - this.#heldBack(this.#waiting), draftPieceCharactersMax)
    // Both halves of a character stay together.
    if (/[\ud800-\udbff]/.test(this.#waiting.charAt(end - 1))) end -= 1
    if (end <= 0) return
    const text = this.#waiting.slice(0, end)
    this.#emit({ type: 'assistant_draft', offset: this.#offset, text })
    this.#offset += text.length
    this.#waiting = this.#waiting.slice(end)
    if (this.#waiting !== '') this.add('')
  }
}
