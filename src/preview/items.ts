/**
 * A list in a header or a query without the items of which `isDropped` is true; undefined when none is left. Shorter items than `lengthMin`
 * are not looked at, and no list of all items is made: a head can have tens of thousands.
 */
export function withoutItems(
  list: string,
  separator: string,
  lengthMin: number,
  isDropped: (item: string) => boolean,
): string | undefined {
  const runs: string[] = []
  let runStart = 0
  for (let at = 0; at <= list.length;) {
    const next = list.indexOf(separator, at)
    const end = next === -1 ? list.length : next
    if (end - at >= lengthMin && isDropped(list.slice(at, end))) {
      if (at > runStart) runs.push(list.slice(runStart, at - 1))
      runStart = end + 1
    }
    at = end + 1
  }
  if (runStart === 0) return list
  if (runStart <= list.length) runs.push(list.slice(runStart))
  return runs.length === 0 ? undefined : runs.join(separator)
}
