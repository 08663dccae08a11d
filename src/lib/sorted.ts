import { TimeSlice } from './async/time-slice.ts'

/** Sorted at once, and merged between two looks at the clock. */
const runLength = 1024

/** What `toSorted` returns, for lists of a hundred thousand: it yields to the event loop. */
export async function sortedInSlices<T>(items: readonly T[], compare: (a: T, b: T) => number): Promise<T[]> {
  const slice = new TimeSlice()
  let from: T[] = []
  for (let at = 0; at < items.length; at += runLength) {
    await slice.next()
    from.push(...items.slice(at, at + runLength).toSorted(compare))
  }
  for (let width = runLength; width < items.length; width *= 2) {
    const to: T[] = []
    for (let start = 0; start < from.length; start += 2 * width) {
      const middle = Math.min(start + width, from.length)
      const end = Math.min(start + 2 * width, from.length)
      for (let [left, right] = [start, middle]; left < middle || right < end;) {
        if (to.length % runLength === 0) await slice.next()
        const isLeft = right >= end || (left < middle && compare(from[left]!, from[right]!) <= 0)
        to.push(isLeft ? from[left++]! : from[right++]!)
      }
    }
    from = to
  }
  return from
}
