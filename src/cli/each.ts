import { UsageError } from './exit-codes.ts'
import { reportFailure } from './failure.ts'
import type { Flags } from './settings.ts'

const atOnceMax = 8

/** Flags of a command that removes several things. */
export interface AllFlags extends Flags {
  all?: boolean
  yes?: boolean
}

/** Calls `act` for each name, a few at a time. One that fails keeps no other from it: each failure is told, and the first is thrown. */
export async function each(
  names: readonly string[],
  { json: isJson = false }: Flags,
  act: (name: string) => Promise<unknown>,
): Promise<void> {
  const failures: unknown[] = []
  const waiting = [...new Set(names)].values()
  const work = async () => {
    for (const name of waiting) await act(name).catch((error: unknown) => failures.push(error))
  }
  await Promise.all(Array.from({ length: atOnceMax }, work))
  const [first, ...others] = failures
  for (const failure of others) reportFailure(failure, { isJson, help: 'atoll help' })
  if (failures.length > 0) throw first
}

/** The names that were given, or with `--all --yes` those of `list`. */
export async function chosen(
  names: readonly string[],
  { all = false, yes = false }: AllFlags,
  noun: string,
  list: () => Promise<string[]>,
): Promise<readonly string[]> {
  if (all && names.length > 0) throw new UsageError(`--all and the name of a ${noun} exclude each other`)
  if (all && !yes) throw new UsageError(`--all removes every ${noun}: add --yes if that is meant`)
  if (!all && names.length === 0) throw new UsageError(`the id or name of a ${noun} is missing, or --all --yes`)
  return all ? await list() : names
}
