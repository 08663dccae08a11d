import { readFile } from 'node:fs/promises'
import { run } from '../command.ts'

export interface MountEntry {
  target: string
  kind: string
  source: string
}

/** The mounts of this process's namespace at or below a path, deepest first; the order in which they can be unmounted. */
export async function mountsBelow(path: string): Promise<MountEntry[]> {
  const entries: MountEntry[] = []
  for (const line of (await readFile('/proc/self/mountinfo', 'utf8')).split('\n')) {
    const [left = '', right = ''] = line.split(' - ')
    const target = unescape(left.split(' ')[4] ?? '')
    const [kind = '', source = ''] = right.split(' ')
    if (target === path || target.startsWith(`${path}/`)) entries.push({ target, kind, source: unescape(source) })
  }
  return entries.reverse()
}

/** The mount on which a real path lies, with its options: those that a bind of it inherits. */
export async function mountOf(path: string): Promise<{ target: string; options: string[] }> {
  let found = { target: '', options: [] as string[] }
  for (const line of (await readFile('/proc/self/mountinfo', 'utf8')).split('\n')) {
    const fields = line.split(' ')
    const target = unescape(fields[4] ?? '')
    const holds = target === path || path.startsWith(target === '/' ? '/' : `${target}/`)
    // A later line lies on top of an earlier one of the same place.
    if (target !== '' && holds && target.length >= found.target.length) {
      found = { target, options: (fields[5] ?? '').split(',') }
    }
  }
  return found
}

export async function isMounted(path: string): Promise<boolean> {
  return (await mountsBelow(path)).some((entry) => entry.target === path)
}

/** Unmounts what is mounted at or below a path. A mount that someone holds is detached and ends with its last user. */
export async function unmountBelow(path: string): Promise<void> {
  const targets = (await mountsBelow(path)).map((entry) => entry.target)
  if (targets.length > 0) await run(['umount', '--lazy', ...targets])
  // Deleting files through a mount that is left would empty what it shows.
  const [left] = await mountsBelow(path)
  if (left !== undefined) throw new Error(`${left.target} is still mounted`)
}

/** mountinfo writes blanks and backslashes in octal. */
function unescape(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(parseInt(digits, 8)))
}
