import { basename, posix } from 'node:path'
import { UsageError } from './exit-codes.ts'

/** One side of a copy: a path here, or one in a sandbox. */
export type Location = { sandbox?: undefined; path: string } | { sandbox: string; path: string }

const replacement = '\u{fffd}'

/** Parses `SANDBOX:/path`, with an id or a name, or a local path. `./web:x` is a local one. */
export function parseLocation(text: string): Location {
  if (text === '') throw new UsageError('a path is empty')
  if (text.includes(replacement)) {
    throw new UsageError(`the name ${JSON.stringify(text)} is no UTF-8: copy the folder that holds it, with -r`)
  }
  const [, sandbox, path = ''] = /^(sb-[^:/]*|[a-z0-9][a-z0-9-]{0,62}):(.*)$/s.exec(text) ?? []
  if (sandbox === undefined) return { path: text }
  if (!/^[a-z0-9-]+$/.test(sandbox)) throw new UsageError(`${JSON.stringify(sandbox)} is no id of a sandbox`)
  if (!path.startsWith('/')) {
    const local = `./${text} is a file here`
    throw new UsageError(
      `${JSON.stringify(text)}: a path in a sandbox is absolute, such as ${sandbox}:/workspace; ${local}`,
    )
  }
  return { sandbox, path }
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
