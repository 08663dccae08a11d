import { access } from 'node:fs/promises'

/** Whether a path leads to something; false for a dangling link. */
export function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  )
}

/** For the `catch` of a call on a path: undefined where nothing is there (ENOENT); throws any other error. */
export function unlessMissing(error: unknown): undefined {
  if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
  throw error
}
