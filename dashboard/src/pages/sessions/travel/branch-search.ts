import { defined, textOf } from '../../../lib/search.ts'

/** `at` is the message at the end of whose turn the forks begin (absent: now), `fork` the one that is seen on a narrow window. */
export interface BranchSearch {
  at?: string
  fork?: string
}

export function branchSearchOf({ at, fork }: Record<string, unknown>): BranchSearch {
  return defined({ at: textOf(at), fork: textOf(fork) })
}
