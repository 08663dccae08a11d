/** The hierarchy with the processors, below the group of all sandboxes. Its short reads and writes do not yield. */
export interface ProcessorGroups {
  /** Processors that groups of sandboxes may have now: some go offline, and come back. */
  allowed(): number[]
  /** Changes the processors of a group; undefined: all. Returns false when there is no such group. Throws the kernel's error. */
  set(group: string, processors: readonly number[] | undefined): boolean
}

/** A group moves from one processor to another that has at least this many fewer groups. */
const unbalanced = 2

/**
 * Divides the processors among the control groups of sandboxes, so that `sched_getaffinity`, and with it `nproc`, tells what a sandbox may
 * use. Each group gets the processors that the fewest groups have. Groups that may use every processor do not count.
 */
export class Processors {
  readonly #groups: ProcessorGroups
  readonly #given: Map<string, number[]>

  /** `given`: the processors of groups that an earlier server has left. */
  constructor(groups: ProcessorGroups, given: ReadonlyMap<string, number[]> = new Map()) {
    this.#groups = groups
    this.#given = new Map(given)
  }

  /**
   * Chooses the processors of a group that may use `count` of them, rounded up. The group keeps those of its present ones that are still
   * allowed. Undefined: all, because there are no more. The caller applies the choice.
   */
  choose(group: string, count: number): number[] | undefined {
    const has = this.#given.get(group) ?? []
    this.release(group)
    const allowed = this.#groups.allowed()
    const wanted = Math.max(1, Math.ceil(count))
    if (wanted >= allowed.length) return undefined
    const load = this.#load(allowed)
    const preference = (processor: number) => [has.includes(processor) ? 0 : 1, load.get(processor) ?? 0, processor]
    const chosen = allowed.toSorted((one, other) => compare(preference(one), preference(other))).slice(0, wanted)
    this.#given.set(group, chosen)
    return chosen
  }

  /** Whether a group has as many processors as it would get now, and all are still allowed. */
  has(group: string, count: number): boolean {
    const allowed = this.#groups.allowed()
    const wanted = Math.max(1, Math.ceil(count))
    const has = this.#given.get(group)
    if (wanted >= allowed.length) return has === undefined
    return has?.length === wanted && has.every((processor) => allowed.includes(processor))
  }

  /** Chooses the processors of an existing group and applies the choice. */
  change(group: string, count: number): void {
    this.#groups.set(group, this.choose(group, count))
  }

  /** Forgets a group whose processes have ended. */
  release(group: string): void {
    this.#given.delete(group)
  }

  /** Moves groups from busy processors to those that ended sandboxes have left. */
  balance(): void {
    const load = this.#load(this.#groups.allowed())
    for (const [group, has] of this.#given) {
      const groups = [...load.values()]
      if (Math.max(...groups) - Math.min(...groups) < unbalanced) return
      const most = has.toSorted((one, other) => (load.get(other) ?? 0) - (load.get(one) ?? 0))[0]
      const [least] = [...load]
        .filter(([processor]) => !has.includes(processor))
        .toSorted((one, other) => one[1] - other[1])
      if (most === undefined || least === undefined) continue
      const fewer = (load.get(most) ?? 0) - least[1]
      if (fewer < unbalanced) continue
      const changed = has.map((processor) => (processor === most ? least[0] : processor))
      // A sandbox that is about to start has its processors in its configuration already.
      if (!this.#isSet(group, changed)) continue
      this.#given.set(group, changed)
      load.set(most, (load.get(most) ?? 0) - 1).set(least[0], least[1] + 1)
    }
  }

  /** Applies a change and returns whether that worked: nobody has asked for the change, so a failure is not thrown. */
  #isSet(group: string, processors: readonly number[]): boolean {
    try {
      return this.#groups.set(group, processors)
    } catch {
      return false
    }
  }

  /** How many groups have each processor. */
  #load(allowed: readonly number[]): Map<number, number> {
    const load = new Map(allowed.map((processor) => [processor, 0]))
    for (const processor of [...this.#given.values()].flat()) {
      const groups = load.get(processor)
      if (groups !== undefined) load.set(processor, groups + 1)
    }
    return load
  }
}

function compare(one: readonly number[], other: readonly number[]): number {
  for (const [index, value] of one.entries()) if (value !== other[index]) return value - (other[index] ?? 0)
  return 0
}

/** The numbers in a list of the kernel, such as `0-3,8` (cpuset(7)). */
export function parseProcessors(text: string): number[] {
  return text
    .trim()
    .split(',')
    .filter(Boolean)
    .flatMap((range) => {
      const [first = 0, last = first] = range.split('-').map(Number)
      return Array.from({ length: last - first + 1 }, (_, index) => first + index)
    })
}

/** Formats numbers as a list of the kernel. */
export function formatProcessors(processors: readonly number[]): string {
  return processors.toSorted((one, other) => one - other).join(',')
}
