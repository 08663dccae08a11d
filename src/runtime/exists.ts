import { access } from 'node:fs/promises'

/** Whether a path leads to something; false for a dangling link. */
export function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  )
}
