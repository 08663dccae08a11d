/** Milliseconds that one call takes, `rounds` times. */
export async function timed(rounds: number, work: (round: number) => Promise<unknown>): Promise<number[]> {
  const times: number[] = []
  for (let round = 0; round < rounds; round += 1) {
    const start = performance.now()
    await work(round)
    times.push(performance.now() - start)
  }
  return times
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = Math.floor(sorted.length / 2)
  const upper = sorted[middle] ?? Number.NaN
  return sorted.length % 2 === 1 ? upper : (upper + (sorted[middle - 1] ?? Number.NaN)) / 2
}

/** One line of the table: what Atoll takes, what the bare tool takes in the same run, and their ratio. */
export interface Comparison {
  what: string
  atollMs: number
  bareMs: number
  bare: string
}

/** Runs both sides in turn, round by round, so that a machine whose speed drifts slows both alike. */
export async function compare(
  what: string,
  bare: string,
  rounds: number,
  sides: {
    atoll: (round: number) => Promise<unknown>
    bare: (round: number) => Promise<unknown>
    /** Runs before each round and is not counted. */
    prepare?: () => Promise<unknown>
  },
): Promise<Comparison> {
  await sides.prepare?.()
  await sides.atoll(-1)
  await sides.bare(-1)
  const atoll: number[] = []
  const other: number[] = []
  for (let round = 0; round < rounds; round += 1) {
    await sides.prepare?.()
    atoll.push(...(await timed(1, () => sides.atoll(round))))
    other.push(...(await timed(1, () => sides.bare(round))))
  }
  return { what, bare, atollMs: median(atoll), bareMs: median(other) }
}

export function table(rows: readonly Comparison[]): string {
  const cells = rows.map(({ what, bare, atollMs, bareMs }) => [
    what,
    `${atollMs.toFixed(2)} ms`,
    bare,
    `${bareMs.toFixed(2)} ms`,
    (atollMs / bareMs).toFixed(2),
  ])
  const all = [['what', 'Atoll', 'bare tool', 'bare', 'ratio'], ...cells]
  const widths = all[0]?.map((_, column) => Math.max(...all.map((row) => row[column]?.length ?? 0))) ?? []
  return all.map((row) => row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ')).join('\n')
}
