import { type IdPrefix, idPrefixes } from './id.ts'

/** A name of a sandbox, a checkpoint or a session: legal in a path, a DNS label and a shell line. */
export const namePattern = /^[a-z0-9][a-z0-9-]{0,62}$/

/** Words that stand, or may come to stand, where a route has the id of a sandbox or a session. */
const routeWords = new Set([
  'all',
  'checkpoints',
  'events',
  'from-checkpoint',
  'list',
  'metrics',
  'new',
  'search',
  'self',
])

/** Ids of which none stands where a name may: a name may begin as they do. */
const neverNamed: ReadonlySet<string> = new Set<IdPrefix>(['mom_'])

/** What is wrong with a name; undefined for a legal one. */
export function nameFault(name: string): string | undefined {
  if (!namePattern.test(name)) return 'must be 1 to 63 of `a–z`, `0–9` and `-`, the first no `-`'
  // An id always stands for itself.
  const prefix = idPrefixes
    .filter((id) => !neverNamed.has(id))
    .map((id) => id.replace('_', '-'))
    .find((start) => name.startsWith(start))
  if (prefix !== undefined) return `must not begin with ${prefix}, as ids do`
  return routeWords.has(name) ? `must not be ${name}, which is a word of the API` : undefined
}
