import { access } from 'node:fs/promises'

/** Whether a path leads to something; a link to nothing leads to nothing. */
export function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  )
}
