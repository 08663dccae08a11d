import { readdir } from 'node:fs/promises'

/** For the `catch` of a call on a path: undefined where nothing is there (ENOENT); throws any other error. */
export function unlessMissing(error: unknown): undefined {
  if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
  throw error
}

/** What a folder holds; nothing where there is none. A folder that cannot be read does not count as empty. */
export async function namesIn(folder: string): Promise<string[]> {
  return (await readdir(folder).catch(unlessMissing)) ?? []
}
