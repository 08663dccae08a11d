import { constants } from 'node:fs'
import { access, readFile } from 'node:fs/promises'
import { basename } from 'node:path'
import { run } from '../command.ts'
import { readNow } from '../read-now.ts'

interface MountEntry {
  target: string
  options: string[]
  kind: string
  source: string
}

/** The mounts of this process's namespace. A later one lies on top of an earlier one at the same path. */
async function mountTable(): Promise<MountEntry[]> {
  const lines = (await readFile('/proc/self/mountinfo', 'utf8')).trimEnd().split('\n')
  return lines.map((line) => {
    const [left = '', right = ''] = line.split(' - ')
    const [, , , , target = '', options = ''] = left.split(' ')
    const [kind = '', source = ''] = right.split(' ')
    return { target: unescape(target), options: options.split(','), kind, source: unescape(source) }
  })
}

/** The mounts of this process's namespace at or below a path, deepest first; the order in which they can be unmounted. */
export async function mountsBelow(path: string): Promise<MountEntry[]> {
  const isBelow = ({ target }: MountEntry) => target === path || target.startsWith(`${path}/`)
  return (await mountTable()).filter(isBelow).reverse()
}

/** The mount on which a real path lies, with its options: those that a bind of it inherits. */
export async function mountOf(path: string): Promise<{ target: string; options: string[] }> {
  let found = { target: '', options: [] as string[] }
  for (const { target, options } of await mountTable()) {
    const holds = target === path || path.startsWith(target === '/' ? '/' : `${target}/`)
    if (holds && target.length >= found.target.length) found = { target, options }
  }
  return found
}

/** `major:minor` of the device that is mounted at a path. Undefined where none is, or the kernel does not tell. */
export async function deviceOf(path: string): Promise<string | undefined> {
  const source = (await mountsBelow(path)).find(({ target }) => target === path)?.source
  return source === undefined ? undefined : readNow(`/sys/class/block/${basename(source)}/dev`)?.trim()
}

export async function isMounted(path: string): Promise<boolean> {
  return (await mountsBelow(path)).some((entry) => entry.target === path)
}

/** Unmounts what is mounted at or below a path. A mount that someone holds is detached and ends with its last user. */
export async function unmountBelow(path: string): Promise<void> {
  const targets = (await mountsBelow(path)).map((entry) => entry.target)
  if (targets.length > 0) await run(['umount', '--lazy', ...targets])
  // Callers delete files afterwards, and through a mount that is left would delete those that it shows.
  const [left] = await mountsBelow(path)
  if (left !== undefined) throw new Error(`${left.target} is still mounted`)
}

export const readOnlyReason = 'the disk pool is read-only after an error of the disk below it'

/** Whether btrfs has made itself read-only, as it does when it cannot write what it needs. */
export async function isReadOnly(mountDir: string): Promise<boolean> {
  return access(mountDir, constants.W_OK).then(
    () => false,
    (error: NodeJS.ErrnoException) => error.code === 'EROFS' || error.code === 'EIO',
  )
}

/** mountinfo writes blanks and backslashes in octal. */
function unescape(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(parseInt(digits, 8)))
}
