import { type Entry, placeOfEntry } from './entry.ts'
import type { Folder, Folders } from './folder-store.ts'
import { keyOf, type Place } from './place.ts'

export type SortBy = 'name' | 'size' | 'time'
export interface TreeOrder {
  sortBy: SortBy
  isDescending: boolean
  showsHidden: boolean
}

/** A line of the tree: something in a folder, or what there is to say about a folder. */
export type Row =
  | {
      type: 'entry'
      key: string
      place: Place
      folder: Place
      entry: Entry
      depth: number
      /** Of a folder. */
      isOpen: boolean
      position: number
      setSize: number
    }
  | { type: 'note'; key: string; folder: Place; depth: number; note: 'loading' | 'empty' | 'hidden'; count: number }
  | { type: 'error'; key: string; folder: Place; depth: number; error: unknown }

/** The lines of the tree below a folder. Folders come before files. */
export function rowsOf(root: Place, folders: Folders, order: TreeOrder): Row[] {
  const rows: Row[] = []
  addRows(rows, root, 0, { folders, order })
  return rows
}

function addRows(rows: Row[], place: Place, depth: number, context: { folders: Folders; order: TreeOrder }): void {
  const { folders, order } = context
  const folder = folders.get(keyOf(place))
  if (folder === undefined) return
  const { entries, error, isLoading } = folder
  const about = { key: `${keyOf(place)}\0`, folder: place, depth }
  if (error !== undefined) rows.push({ type: 'error', ...about, error })
  if (entries === undefined) {
    if (isLoading) rows.push({ type: 'note', ...about, note: 'loading', count: 0 })
    return
  }
  const shown = sortedEntries(folder, order)
  for (const [index, entry] of shown.entries()) {
    const child = placeOfEntry(place, entry)
    const key = keyOf(child)
    const isOpen = entry.isDir && folders.has(key)
    const inSet = { position: index + 1, setSize: shown.length }
    rows.push({ type: 'entry', key, place: child, folder: place, entry, depth, isOpen, ...inSet })
    if (isOpen) addRows(rows, child, depth + 1, context)
  }
  if (shown.length > 0) return
  const hidden = entries.length - shown.length
  rows.push({ type: 'note', ...about, note: hidden === 0 ? 'empty' : 'hidden', count: hidden })
}

const sorted = new WeakMap<readonly Entry[], { order: TreeOrder; entries: readonly Entry[] }>()

function sortedEntries({ entries = [] }: Folder, order: TreeOrder): readonly Entry[] {
  const known = sorted.get(entries)
  if (known?.order === order) return known.entries
  const shown = order.showsHidden ? [...entries] : entries.filter(({ name }) => !name.startsWith('.'))
  shown.sort(comparisonOf(order, shown.length))
  sorted.set(entries, { order, entries: shown })
  return shown
}

/** Comparing as people count takes a second for more. */
const countedMax = 20_000
const collator = new Intl.Collator(undefined, { numeric: true })

function comparisonOf({ sortBy, isDescending }: TreeOrder, count: number): (one: Entry, other: Entry) => number {
  const byName =
    count > countedMax
      ? (one: Entry, other: Entry) => (one.name < other.name ? -1 : one.name === other.name ? 0 : 1)
      : (one: Entry, other: Entry) => collator.compare(one.name, other.name)
  const sign = isDescending ? -1 : 1
  return (one, other) => {
    if (one.isDir !== other.isDir) return one.isDir ? -1 : 1
    const first =
      sortBy === 'size'
        ? (one.size ?? 0) - (other.size ?? 0)
        : sortBy === 'time'
          ? (one.modifiedAt ?? 0) - (other.modifiedAt ?? 0)
          : 0
    return sign * (first === 0 ? byName(one, other) : first)
  }
}
