/** Cuts a list into batches within both bounds, in order. An item larger than `sizeMax` is a batch of its own. */
export function* batches<Item>(
  items: readonly Item[],
  sizeOf: (item: Item) => number,
  { sizeMax, countMax = Infinity }: { sizeMax: number; countMax?: number },
): Generator<Item[]> {
  let batch: Item[] = []
  let size = 0
  for (const item of items) {
    const itemSize = sizeOf(item)
    if (batch.length > 0 && (size + itemSize > sizeMax || batch.length >= countMax)) {
      yield batch
      batch = []
      size = 0
    }
    batch.push(item)
    size += itemSize
  }
  if (batch.length > 0) yield batch
}
