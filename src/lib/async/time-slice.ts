import { FairYield } from './fair-yield.ts'

/** How long a piece of work may hold the event loop at once. */
const sliceMs = 2

/** One long piece of work goes on per iteration of the event loop, so that many of them delay others no longer than one. */
const turns = new FairYield(1)

/** Ends a slice of a long piece of work when its time is over. Most steps wait for nothing. */
export class TimeSlice {
  #untilMs = performance.now() + sliceMs

  /** Call it before each step. Undefined while the slice lasts; else resolves when this piece of work may go on. */
  next(): Promise<void> | undefined {
    return performance.now() < this.#untilMs ? undefined : this.#yield()
  }

  async #yield(): Promise<void> {
    await turns.next()
    this.#untilMs = performance.now() + sliceMs
  }
}
