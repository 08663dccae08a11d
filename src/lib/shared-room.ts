export interface SharedRoomOptions {
  /** Most for one owner, and for all together. */
  ofOneMax: number
  ofAllMax: number
}

interface Waiting {
  owner: string
  size: number
  enter(leave: () => void): void
}

/**
 * Room of which no owner has more than a share, in whatever unit. Whoever waits comes in turn, but for those whose owner's share is
 * used up. What is larger than a share takes all of it.
 */
export class SharedRoom {
  readonly #ofOneMax: number
  readonly #ofAllMax: number
  #taken = 0
  readonly #takenBy = new Map<string, number>()
  readonly #waiting: Waiting[] = []

  constructor({ ofOneMax, ofAllMax }: SharedRoomOptions) {
    this.#ofOneMax = ofOneMax
    this.#ofAllMax = ofAllMax
  }

  /** Resolves with what gives the room back, which may be called again. */
  async enter(owner: string, size = 1): Promise<() => void> {
    const leave = this.tryEnter(owner, size)
    return leave ?? (await new Promise((enter) => this.#waiting.push({ owner, size, enter })))
  }

  /** See `enter`; undefined when there is no room, or others of this owner wait for some. */
  tryEnter(owner: string, size = 1): (() => void) | undefined {
    return this.#waiting.some((one) => one.owner === owner) ? undefined : this.#take(owner, size)
  }

  #take(owner: string, size: number): (() => void) | undefined {
    const part = Math.min(size, this.#ofOneMax)
    const ofOwner = (this.#takenBy.get(owner) ?? 0) + part
    if (this.#taken + part > this.#ofAllMax || ofOwner > this.#ofOneMax) return undefined
    this.#count(owner, part)
    let isInside = true
    return () => {
      if (!isInside) return
      isInside = false
      this.#count(owner, -part)
      this.#letIn()
    }
  }

  #letIn(): void {
    const held = new Set<string>()
    for (const one of [...this.#waiting]) {
      const leave = held.has(one.owner) ? undefined : this.#take(one.owner, one.size)
      if (leave === undefined) {
        held.add(one.owner)
        continue
      }
      this.#waiting.splice(this.#waiting.indexOf(one), 1)
      one.enter(leave)
    }
  }

  #count(owner: string, step: number): void {
    const taken = (this.#takenBy.get(owner) ?? 0) + step
    this.#taken += step
    if (taken > 0) this.#takenBy.set(owner, taken)
    else this.#takenBy.delete(owner)
  }
}
