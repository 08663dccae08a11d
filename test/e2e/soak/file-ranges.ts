import { Intervals } from './intervals.ts'

/** The bounds of a number that only grows: at least the acknowledged one, at most the requested one. */
export interface Range {
  lo: number
  hi: number
}

export type Ranges = ReadonlyMap<string, Range>

/** The end of a call as its caller knows it. */
export type Outcome = 'done' | 'refused' | 'unknown'

export function copyRanges(ranges: Ranges): Map<string, Range> {
  return new Map([...ranges].map(([key, range]) => [key, { ...range }]))
}

/**
 * The files of one sandbox that clients write: each by one client alone, one write after the other, with a greater number
 * every time. A file that does not exist reads as 0. Only an in-place restore leads back.
 */
export class Files {
  readonly #ranges: Map<string, Range>
  readonly #abandoned = new Set<string>()
  readonly #writes = new Map<string, Intervals>()
  /** The lowest numbers since each capture began that is under way. */
  readonly #captures = new Set<Map<string, number>>()
  readonly #restores = new Intervals()

  constructor(ranges: Ranges) {
    this.#ranges = copyRanges(ranges)
  }

  get names(): string[] {
    return [...this.#ranges.keys()]
  }

  /** Before a write. The result is called when it has ended. */
  write(name: string, value: number): (outcome: Outcome) => void {
    const range = this.#own(name)
    range.hi = value
    const wasRestored = this.#restores.watch()
    const end = this.#writesOf(name).begin()
    return (outcome) => {
      end()
      if (outcome === 'done' && !wasRestored()) range.lo = Math.max(range.lo, value)
    }
  }

  /** Before a read. The result is called with what was found and says what is wrong with it. */
  read(name: string): (value: number) => string | undefined {
    const { lo } = this.#own(name)
    const wasRestored = this.#restores.watch()
    return (value) => {
      if (this.#abandoned.has(name)) return undefined
      const range = this.#own(name)
      const least = Math.min(lo, range.lo)
      if (value < least) return `file ${name} holds ${value}, but ${least} was acknowledged`
      if (value > range.hi) return `file ${name} holds ${value}, but at most ${range.hi} can be there`
      if (!wasRestored()) range.lo = Math.max(range.lo, value)
      return undefined
    }
  }

  /** Its content is unknown from now on: a write of unknown outcome may still happen. */
  abandon(name: string): void {
    this.#ranges.delete(name)
    this.#abandoned.add(name)
  }

  /** Before a checkpoint. The result is called when it is ready and says what is in it. */
  capture(): () => Ranges {
    const lows = new Map([...this.#ranges].map(([name, { lo }]) => [name, lo]))
    this.#captures.add(lows)
    return () => {
      this.#captures.delete(lows)
      return new Map([...this.#ranges].map(([name, { hi }]) => [name, { lo: lows.get(name) ?? 0, hi }]))
    }
  }

  /** Before a restore. The result is called when it has ended. */
  restore(saved: Ranges): (outcome: Outcome) => void {
    const end = this.#restores.begin()
    const names = [...new Set([...this.#ranges.keys(), ...saved.keys()])].filter((name) => !this.#abandoned.has(name))
    const before = names.map((name) => ({ name, lo: this.#own(name).lo, wasWritten: this.#writesOf(name).watch() }))
    for (const name of names) {
      const range = this.#own(name)
      const { lo = 0, hi = 0 } = saved.get(name) ?? {}
      range.lo = Math.min(range.lo, lo)
      range.hi = Math.max(range.hi, hi)
      for (const lows of this.#captures) lows.set(name, Math.min(lows.get(name) ?? 0, range.lo))
    }
    return (outcome) => {
      if (end()) return
      for (const { name, lo, wasWritten } of before) {
        const range = this.#ranges.get(name)
        if (range === undefined) continue
        if (outcome === 'refused') range.lo = Math.max(range.lo, lo)
        if (outcome === 'done' && !wasWritten()) Object.assign(range, saved.get(name) ?? { lo: 0, hi: 0 })
      }
    }
  }

  #own(name: string): Range {
    const range = this.#ranges.get(name) ?? { lo: 0, hi: 0 }
    if (!this.#abandoned.has(name)) this.#ranges.set(name, range)
    return range
  }

  #writesOf(name: string): Intervals {
    const writes = this.#writes.get(name) ?? new Intervals()
    this.#writes.set(name, writes)
    return writes
  }
}
