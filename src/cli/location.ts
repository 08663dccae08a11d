import { basename, posix } from 'node:path'
import { UsageError } from './exit-codes.ts'

/** One side of a copy: a path here, or one in a sandbox. */
export type Location = { sandboxId?: undefined; path: string } | { sandboxId: string; path: string }

const replacement = '\u{fffd}'

/** Parses `sb-…:/path` or a local path. `./sb-x:y` is a local one. */
export function parseLocation(text: string): Location {
  if (text === '') throw new UsageError('a path is empty')
  if (text.includes(replacement)) {
    throw new UsageError(`the name ${JSON.stringify(text)} is no UTF-8: copy the folder that holds it, with -r`)
  }
  const [, sandboxId, path = ''] = /^(sb-[^:/]*):(.*)$/s.exec(text) ?? []
  if (sandboxId === undefined) return { path: text }
  if (!/^sb-[a-z0-9]+$/.test(sandboxId)) throw new UsageError(`${JSON.stringify(sandboxId)} is no id of a sandbox`)
  if (!path.startsWith('/')) {
    throw new UsageError(`${JSON.stringify(text)}: a path in a sandbox is absolute, such as ${sandboxId}:/workspace`)
  }
  return { sandboxId, path }
}

/** The name that a copy gets below an existing folder; undefined for a path that means its content, such as `dir/.`. */
export function nameOf(path: string): string | undefined {
  const name = basename(path)
  return name === '.' || name === '..' || name === '' ? undefined : name
}

/** Where a copy goes, as `cp` has it: into a folder that is there, else under the name that was given. */
export function targetOf(source: string, target: string, isFolder: boolean): string {
  const name = nameOf(source)
  return isFolder && name !== undefined && !source.endsWith('/.') ? posix.join(target, name) : target
}
