import { type Files, NotFoundError } from 'atoll-sdk'
import type { LocalFile } from './dropped-files.ts'
import { childPlace, keyOf, parentPlace, type Place } from './place.ts'

export interface TargetedFile extends LocalFile {
  place: Place
}

export function targetsOf(folder: Place, files: readonly LocalFile[]): TargetedFile[] {
  return files.map((file) => ({ ...file, place: file.parts.reduce(childPlace, folder) }))
}

/** Those files whose place is taken. A folder is looked into once, and only where there is one. */
export async function collisionsOf(
  files: Files,
  folder: Place,
  targets: readonly TargetedFile[],
): Promise<Set<TargetedFile>> {
  const names = new Map<string, Promise<ReadonlySet<string>>>()
  const namesIn = async (place: Place): Promise<ReadonlySet<string>> => {
    const key = keyOf(place)
    let known = names.get(key)
    if (known === undefined) {
      known = key === keyOf(folder) ? listed(files, place) : listedIfThere(place)
      names.set(key, known)
    }
    return await known
  }
  const listedIfThere = async (place: Place): Promise<ReadonlySet<string>> => {
    const above = parentPlace(place)
    const isThere = above !== undefined && (await namesIn(above)).has(keyOf(place))
    return isThere ? await listed(files, place) : new Set()
  }
  const taken = new Set<TargetedFile>()
  for (const target of targets) {
    const above = parentPlace(target.place)
    if (target.file === undefined || above === undefined) continue
    if ((await namesIn(above)).has(keyOf(target.place))) taken.add(target)
  }
  return taken
}

async function listed(files: Files, place: Place): Promise<ReadonlySet<string>> {
  try {
    return new Set((await files.list(place)).map(keyOf))
  } catch (error) {
    if (error instanceof NotFoundError) return new Set()
    throw error
  }
}
