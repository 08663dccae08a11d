import type { DirectoryEntry, FileChange } from 'atoll-sdk'
import { childPlace, keyOf, nameOfPlace, parentPlace, type Place, placeTold } from './place.ts'

/** What a folder holds. A hundred thousand are kept, so without what follows from the folder. */
export interface Entry {
  name: string
  isDir: boolean
  /** Undefined: it has changed since the folder was read. */
  size: number | undefined
  /** In ms; likewise. */
  modifiedAt: number | undefined
  /** Of a path that is no UTF-8. */
  pathBase64?: string
}

export function entryOf({ name, isDir, size, modifiedAt, pathBase64 }: DirectoryEntry): Entry {
  const entry = { name, isDir, size, modifiedAt: Date.parse(modifiedAt) }
  return pathBase64 === undefined ? entry : { ...entry, pathBase64 }
}

export function placeOfEntry(folder: Place, { name, pathBase64 }: Entry): Place {
  if (pathBase64 === undefined) return childPlace(folder, name)
  return { path: `${folder.path === '/' ? '' : folder.path}/${name}`, pathBase64 }
}

export type Facts = Pick<Entry, 'size' | 'modifiedAt'>

/** The entries of a folder after what has changed in it; the same object where nothing has. `facts` are of files that were looked at a moment ago, by key. */
export function withChanges(
  folder: Place,
  entries: readonly Entry[],
  changes: readonly FileChange[],
  facts: ReadonlyMap<string, Facts>,
): readonly Entry[] {
  const folderKey = keyOf(folder)
  const isHere = (place: Place) => {
    const parent = parentPlace(place)
    return parent !== undefined && keyOf(parent) === folderKey
  }
  let byKey: Map<string, Entry> | undefined
  const known = () => (byKey ??= new Map(entries.map((entry) => [entry.pathBase64 ?? entry.name, entry])))
  for (const { type, path, pathBase64, isDir = false, from, fromBase64 } of changes) {
    const source = placeTold(from, fromBase64)
    if (source !== undefined && isHere(source)) known().delete(source.pathBase64 ?? nameOfPlace(source))
    const place = placeTold(path, pathBase64)
    if (place === undefined || !isHere(place)) continue
    const key = place.pathBase64 ?? nameOfPlace(place)
    if (type === 'removed') known().delete(key)
    else known().set(key, { ...unread(place, isDir), ...facts.get(keyOf(place)) })
  }
  return byKey === undefined ? entries : [...byKey.values()]
}

function unread(place: Place, isDir: boolean): Entry {
  const entry = { name: nameOfPlace(place), isDir, size: undefined, modifiedAt: undefined }
  return place.pathBase64 === undefined ? entry : { ...entry, pathBase64: place.pathBase64 }
}
