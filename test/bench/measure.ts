/** Of a number of rounds. With fewer than twenty the 95th percentile (nearest rank) is the slowest. */
export interface Summary {
  median: number
  p95: number
}

/** One row of the report: Atoll and another program, or Atoll in another state, in the same run. */
export interface Comparison {
  what: string
  against: string
  /** Milliseconds when absent. */
  unit?: 'MiB'
  rounds: number
  atoll: Summary
  other: Summary
  output?: OutputFigures
}

/** Of a row that carries output. */
export interface OutputFigures {
  megabytesPerSecond: number
  peakMib: Peaks
  /** The same for an eighth of the output. */
  peakMibOfEighth: Peaks
}

export interface Peaks {
  server: number
  guest: number
  client: number
}

interface Sides {
  atoll: (round: number) => Promise<unknown>
  other: (round: number) => Promise<unknown>
  /** Runs before each round and is not counted. */
  prepare?: () => Promise<unknown>
  /** Runs after each side and is not counted. */
  settle?: () => Promise<unknown>
}

/** Alternates the sides, round by round, so that a machine whose speed drifts slows both alike. Round -1 warms up and does not count. */
export async function compare(what: string, against: string, rounds: number, sides: Sides): Promise<Comparison> {
  const atoll: number[] = []
  const other: number[] = []
  for (let round = -1; round < rounds; round += 1) {
    await sides.prepare?.()
    const atollMs = await timed(() => sides.atoll(round))
    await sides.settle?.()
    const otherMs = await timed(() => sides.other(round))
    await sides.settle?.()
    if (round < 0) continue
    atoll.push(atollMs)
    other.push(otherMs)
  }
  return { what, against, rounds, atoll: summary(atoll), other: summary(other) }
}

/** Milliseconds that one call takes. */
export async function timed(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now()
  await work()
  return performance.now() - start
}

export function summary(values: readonly number[]): Summary {
  const sorted = values.toSorted((a, b) => a - b)
  return { median: median(values), p95: sorted[Math.ceil(sorted.length * 0.95) - 1] ?? Number.NaN }
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = Math.floor(sorted.length / 2)
  const upper = sorted[middle] ?? Number.NaN
  return sorted.length % 2 === 1 ? upper : (upper + (sorted[middle - 1] ?? Number.NaN)) / 2
}
