interface Draft {
  text: string
  restored: number
}

const none: Draft = { text: '', restored: 0 }
/** Of the sessions that were written to last. */
const draftsMax = 50

/** Messages that are being written, by session, for as long as the page is open. */
export class DraftStore {
  readonly #drafts = new Map<string, Draft>()
  readonly #listeners = new Set<() => void>()

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  of(sessionId: string): Draft {
    return this.#drafts.get(sessionId) ?? none
  }

  set(sessionId: string, text: string): void {
    this.#put(sessionId, { ...this.of(sessionId), text })
  }

  restore(sessionId: string, prompt: string): void {
    const { text, restored } = this.of(sessionId)
    const isKnown = text.trim() === '' || text.startsWith(prompt)
    this.#put(sessionId, { text: isKnown ? prompt : `${prompt}\n\n${text}`, restored: restored + 1 })
  }

  #put(sessionId: string, draft: Draft): void {
    this.#drafts.delete(sessionId)
    this.#drafts.set(sessionId, draft)
    const [oldest] = this.#drafts.keys()
    if (this.#drafts.size > draftsMax && oldest !== undefined) this.#drafts.delete(oldest)
    for (const listener of this.#listeners) listener()
  }
}
