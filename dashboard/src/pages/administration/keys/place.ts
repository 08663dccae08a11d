import type { KeyInfo, Keys } from 'atoll-sdk'

/** Whose keys are meant: those of the own organisation, or for the operator those of one. */
export interface KeyPlace {
  keys: Keys
  /** `/api/keys`. */
  path: string
  queryKey: readonly string[]
  /** The key of this page; absent for the operator. */
  ownId?: string | undefined
  /** Id of the organisation, for the CLI of the operator. */
  organisation?: string
}

/** The key with those that it has made, and those that these have made: they end together. */
export function endingWith(id: string, keys: readonly KeyInfo[]): KeyInfo[] {
  const ending = new Set([id])
  // A key is younger than the one that made it.
  const byAge = keys.toSorted((one, other) => (one.createdAt < other.createdAt ? -1 : 1))
  for (const key of byAge) if (key.madeBy !== null && ending.has(key.madeBy)) ending.add(key.id)
  return keys.filter((key) => ending.has(key.id))
}

/** The key with the one that made it, and so on: the end of each is its own. */
export function makersOf(id: string | undefined, keys: readonly KeyInfo[]): ReadonlySet<string> {
  const makers = new Map(keys.map((key) => [key.id, key.madeBy]))
  const found = new Set<string>()
  for (let next: string | null | undefined = id; next && !found.has(next); next = makers.get(next)) found.add(next)
  return found
}
