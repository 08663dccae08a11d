/** Longer names are compared by their beginning: a hostile name must not cost time. */
const comparedLengthMax = 64

/** The candidate that a misspelt name most likely means; undefined when none is near. Upper case, `-` and `_` do not count. */
export function nearest(name: string, candidates: Iterable<string>): string | undefined {
  const wanted = plain(name)
  let best: string | undefined
  let least = 1 + Math.floor(wanted.length / 3)
  for (const candidate of candidates) {
    const given = plain(candidate)
    // A name with or without its unit, such as `memory` for `memoryMB`.
    const isPart = Math.min(wanted.length, given.length) > 2 && (given.startsWith(wanted) || wanted.startsWith(given))
    const steps = isPart ? 1 : distance(wanted, given)
    if (steps >= least) continue
    best = candidate
    least = steps
  }
  return best
}

function plain(name: string): string {
  return name.slice(0, comparedLengthMax).toLowerCase().replaceAll(/[-_]/g, '')
}

/** Letters to insert, remove, replace or swap with their neighbour. */
function distance(from: string, to: string): number {
  let before: number[] = []
  let row = Array.from({ length: to.length + 1 }, (_, column) => column)
  for (let line = 1; line <= from.length; line++) {
    const next = [line]
    for (let column = 1; column <= to.length; column++) {
      const isSame = from[line - 1] === to[column - 1]
      const isSwapped = line > 1 && column > 1 && from[line - 1] === to[column - 2] && from[line - 2] === to[column - 1]
      const steps = [next[column - 1]! + 1, row[column]! + 1, row[column - 1]! + (isSame ? 0 : 1)]
      next.push(Math.min(...steps, isSwapped ? before[column - 2]! + 1 : Infinity))
    }
    before = row
    row = next
  }
  return row[to.length]!
}
