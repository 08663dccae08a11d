/** IPv4 networks as ranges: `end` is the first address behind. */
interface Range {
  start: number
  end: number
}

/** What is left of networks without others; both are blocks such as `10.0.0.0/8`. The result has as few blocks as there can be. */
export function without(networks: readonly string[], others: readonly string[]): string[] {
  let ranges = networks.map(rangeOf)
  for (const other of others.map(rangeOf)) ranges = ranges.flatMap((range) => cut(range, other))
  return ranges.flatMap(blocksOf)
}

function cut(range: Range, other: Range): Range[] {
  const before = { start: range.start, end: Math.min(range.end, other.start) }
  const behind = { start: Math.max(range.start, other.end), end: range.end }
  return [before, behind].filter(({ start, end }) => start < end)
}

function rangeOf(block: string): Range {
  const [address = '', prefix = '32'] = block.split('/')
  const size = 2 ** (32 - Number(prefix))
  const value = address.split('.').reduce((sum, part) => sum * 256 + Number(part), 0)
  const start = Math.floor(value / size) * size
  return { start, end: start + size }
}

function blocksOf({ start, end }: Range): string[] {
  const blocks: string[] = []
  for (let at = start; at < end;) {
    let size = 1
    while (at % (2 * size) === 0 && at + 2 * size <= end) size *= 2
    const address = [24, 16, 8, 0].map((shift) => Math.floor(at / 2 ** shift) % 256).join('.')
    blocks.push(`${address}/${32 - Math.log2(size)}`)
    at += size
  }
  return blocks
}
