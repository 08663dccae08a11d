import { ActiveKeys } from '../lib/async/active-keys.ts'

/** An organisation that has created within this time may create again soon. */
const creatorMs = 10 * 60_000
/** What was taken in this time counts. */
const takenMs = 10_000
const takesMax = 256

/**
 * Who may take the last warm sandbox. One organisation that creates without a pause would have all of them, and the single create of another be
 * a cold start each time: so the last one is left to whoever has taken the fewest lately. An organisation alone has them all.
 */
export class WarmShares {
  readonly #now: () => number
  readonly #creators: ActiveKeys
  #takes: { orgId: string; at: number }[] = []

  constructor(now: () => number = () => performance.now()) {
    this.#now = now
    this.#creators = new ActiveKeys(creatorMs, now)
  }

  /** Whether several organisations create. */
  get isShared(): boolean {
    return this.#creators.count > 1
  }

  /** Notes a create. Returns whether it may take the last one. */
  mayTakeLast(orgId: string): boolean {
    this.#creators.note(orgId)
    if (!this.isShared) return true
    const taken = this.#countTaken()
    const own = taken.get(orgId) ?? 0
    const others = [...taken].filter(([other]) => other !== orgId).map(([, count]) => count)
    const fewest = others.length < this.#creators.count - 1 ? 0 : Math.min(...others)
    return own <= fewest
  }

  noteTaken(orgId: string): void {
    this.#takes.push({ orgId, at: this.#now() })
    if (this.#takes.length > takesMax) this.#takes.shift()
  }

  #countTaken(): Map<string, number> {
    const since = this.#now() - takenMs
    this.#takes = this.#takes.filter(({ at }) => at > since)
    const counts = new Map<string, number>()
    for (const { orgId } of this.#takes) counts.set(orgId, (counts.get(orgId) ?? 0) + 1)
    return counts
  }
}
