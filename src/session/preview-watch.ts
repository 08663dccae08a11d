/** Looks after what told of work, and how many of them are the last, between which more time passes: a minute in all at one a second. */
const looksMax = 20
const slowLooks = 10
const slowFactor = 5

/**
 * Looks now and then whether the preview answers, for a while after each call of `watch`, until `look` says that this is
 * settled. Runs one look at a time.
 */
export class PreviewWatch {
  readonly #pollMs: number
  readonly #look: () => Promise<boolean>
  #timer: NodeJS.Timeout | undefined
  #looksLeft = 0
  #settled = false
  #stopped = false
  #looking = false

  constructor(pollMs: number, look: () => Promise<boolean>) {
    this.#pollMs = pollMs
    this.#look = look
  }

  watch(): void {
    if (this.#stopped) return
    this.#looksLeft = looksMax
    // The session may have another sandbox by now.
    this.#settled = false
    this.#timer ??= this.#arm()
  }

  /** A failure is as if nothing listened yet. */
  async lookNow(): Promise<void> {
    if (this.#stopped || this.#settled || this.#looking) return
    this.#looking = true
    try {
      this.#settled = await this.#look()
    } catch {
      // Looked for again with the next turn.
    } finally {
      this.#looking = false
    }
  }

  /** Until the next `watch`. */
  pause(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#looksLeft = 0
  }

  stop(): void {
    this.#stopped = true
    this.pause()
  }

  #arm(): NodeJS.Timeout {
    const pauseMs = this.#looksLeft > slowLooks ? this.#pollMs : this.#pollMs * slowFactor
    const timer = setTimeout(() => void this.#tick(), pauseMs)
    return timer.unref()
  }

  async #tick(): Promise<void> {
    await this.lookNow()
    this.#looksLeft -= 1
    this.#timer = this.#settled || this.#looksLeft <= 0 ? undefined : this.#arm()
  }
}
