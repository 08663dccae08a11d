import { draftCharactersMax } from '../protocol/agent.ts'
import type { AssistantDraft } from '../protocol/stream-events.ts'

/** More of an answer that a model is writing. */
export type DraftPiece = Pick<AssistantDraft, 'offset' | 'text'>

/** Two pieces as one, however many come at once: a piece that begins an answer replaces what came before, one that does not follow it is left out. */
export function joined(before: DraftPiece | undefined, piece: DraftPiece): DraftPiece {
  if (before === undefined || piece.offset === 0) return { offset: piece.offset, text: piece.text }
  if (piece.offset !== before.offset + before.text.length) return before
  return { offset: before.offset, text: before.text + piece.text }
}

/** How much of which draft a follower has been told. */
export interface ToldDraft {
  number: number
  length: number
}

/** The answer that the model of a session is writing, for those who follow the session now. It is in memory alone, and bounded. */
export class AnswerDraft {
  #number = 0
  #text = ''

  get isEmpty(): boolean {
    return this.#text === ''
  }

  /** A piece that does not follow what is there, as after a lost one, is left out: the whole answer comes later. */
  take({ offset, text }: DraftPiece): void {
    if (offset === 0) this.end()
    if (offset === this.#text.length) this.#text += text.slice(0, draftCharactersMax - offset)
  }

  /** The answer is there, or will not come. */
  end(): void {
    if (this.#text === '') return
    this.#number += 1
    this.#text = ''
  }

  /** What a follower has not been told, and what it has been told then. */
  after({ number, length }: ToldDraft): { piece: DraftPiece; told: ToldDraft } | undefined {
    const offset = number === this.#number ? length : 0
    if (offset === this.#text.length) return undefined
    const piece = { offset, text: this.#text.slice(offset) }
    return { piece, told: { number: this.#number, length: this.#text.length } }
  }
}
