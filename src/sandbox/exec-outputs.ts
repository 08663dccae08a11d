import type { ProcessOutput } from './guest.ts'

/** Outputs up to this size wait in no line: a connection's own buffers take them, however slowly its client reads. */
const smallBytesMax = 64 * 1024
/** What one organisation may be reading from its sandboxes at a time, and as many large outputs it may have unsent. */
const ofOneMax = 4
/** All organisations together; an output has at most 8 MiB of each stream. */
const ofAllMax = 16

/**
 * Bounds the outputs in memory, from the guest's answer until they were sent on. Clients that read slowly hold up large outputs
 * alone, and first those of their own organisation.
 */
export class ExecOutputs {
  readonly #reads = new SharedPlaces()
  readonly #unsent = new SharedPlaces()

  /** Reads an output; a large one is among those in memory until `sent` settles. */
  async take(orgId: string, read: () => Promise<ProcessOutput>, sent?: Promise<unknown>): Promise<ProcessOutput> {
    const leaveRead = await this.#reads.enter(orgId)
    try {
      const output = await read()
      if (sent === undefined || isSmall(output)) return output
      const leave = this.#unsent.tryEnter(orgId)
      if (leave !== undefined) {
        void sent.then(leave, leave)
        return output
      }
    } finally {
      leaveRead()
    }
    // It is dropped and read again in its turn: what waits in line must take no memory.
    const leave = await this.#unsent.enter(orgId)
    void sent.then(leave, leave)
    try {
      return await read()
    } catch (error) {
      leave()
      throw error
    }
  }
}

function isSmall({ stdout, stderr }: ProcessOutput): boolean {
  return stdout.length + stderr.length <= smallBytesMax
}

/** Places of which no organisation has more than its share. Whoever waits comes in turn, but for those whose share is used up. */
class SharedPlaces {
  #taken = 0
  readonly #takenBy = new Map<string, number>()
  readonly #waiting: { orgId: string; enter: (leave: () => void) => void }[] = []

  async enter(orgId: string): Promise<() => void> {
    const leave = this.tryEnter(orgId)
    return leave ?? (await new Promise((enter) => this.#waiting.push({ orgId, enter })))
  }

  /** The function that gives the place back, which may be called again; undefined when none is free. */
  tryEnter(orgId: string): (() => void) | undefined {
    if (this.#taken === ofAllMax || this.#takenBy.get(orgId) === ofOneMax) return undefined
    this.#count(orgId, 1)
    let isInside = true
    return () => {
      if (!isInside) return
      isInside = false
      this.#count(orgId, -1)
      this.#letIn()
    }
  }

  #letIn(): void {
    for (const [index, { orgId, enter }] of this.#waiting.entries()) {
      const leave = this.tryEnter(orgId)
      if (leave === undefined) continue
      this.#waiting.splice(index, 1)
      enter(leave)
      return
    }
  }

  #count(orgId: string, step: 1 | -1): void {
    const taken = (this.#takenBy.get(orgId) ?? 0) + step
    this.#taken += step
    if (taken > 0) this.#takenBy.set(orgId, taken)
    else this.#takenBy.delete(orgId)
  }
}
