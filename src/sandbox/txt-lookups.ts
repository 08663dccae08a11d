import type { TxtResolver } from './ports/txt-resolver.ts'

/** Lookups at a time, of one organisation and of all. A lookup beyond them is refused; the caller asks again later. */
const ofOneMax = 8
const ofAllMax = 64
/** Names whose last answer is remembered. */
const answersMax = 1000

type Texts = readonly string[] | undefined

/**
 * Looks up TXT records of names that tenants choose. Answers are cached, concurrent lookups are bounded, and no caller waits in a
 * queue.
 */
export class TxtLookups {
  readonly #resolver: TxtResolver
  readonly #freshMs: number
  readonly #running = new Map<string, Promise<Texts>>()
  readonly #counts = new Map<string, number>()
  /** In order of lookup: the oldest is evicted first. */
  readonly #answers = new Map<string, { texts: Texts; untilMs: number }>()
  readonly #closing = new AbortController()

  /** An answer, also an empty or failed one, is cached for `freshMs`. */
  constructor(resolver: TxtResolver, freshMs: number) {
    this.#resolver = resolver
    this.#freshMs = freshMs
  }

  /** See `TxtResolver.resolveTxt`; undefined when the answer is unknown. */
  async texts(name: string, orgId: string): Promise<Texts> {
    const answer = this.#answers.get(name)
    if (answer !== undefined && answer.untilMs > performance.now()) return answer.texts
    const running = this.#running.get(name)
    if (running !== undefined) return await running
    const count = this.#counts.get(orgId) ?? 0
    if (this.#closing.signal.aborted || count >= ofOneMax || this.#running.size >= ofAllMax) return undefined
    this.#counts.set(orgId, count + 1)
    const lookup = this.#resolver.resolveTxt(name, this.#closing.signal).catch(() => undefined)
    this.#running.set(name, lookup)
    try {
      const texts = await lookup
      this.#remember(name, texts)
      return texts
    } finally {
      this.#running.delete(name)
      const left = (this.#counts.get(orgId) ?? 1) - 1
      if (left > 0) this.#counts.set(orgId, left)
      else this.#counts.delete(orgId)
    }
  }

  /** Ends running lookups and refuses further ones. */
  async close(): Promise<void> {
    this.#closing.abort()
    await Promise.all(this.#running.values())
  }

  #remember(name: string, texts: Texts): void {
    this.#answers.delete(name)
    const [oldest] = this.#answers.keys()
    if (this.#answers.size >= answersMax && oldest !== undefined) this.#answers.delete(oldest)
    this.#answers.set(name, { texts, untilMs: performance.now() + this.#freshMs })
  }
}
