import type { Dirent } from 'node:fs'
import { lstat, readlink } from 'node:fs/promises'
import { reasonOf } from '../../../sdk/src/reasons.ts'
import type { Sandbox } from '../../../sdk/src/index.ts'
import { findArguments, Ignore } from '../../../sdk/src/ignore.ts'
import { CliError } from '../exit-codes.ts'
import type { Entry, Snapshot } from './plan.ts'

/** Drafts of what comes from a sandbox are in a folder with such a name, which is on no side. */
export const draftPrefix = '.atoll-sync-'
const executable = 0o100
/** Bound of what a sandbox says about its files, a million at most. */
const listBytesMax = 256 * 1024 * 1024
const entriesMax = 1_000_000
const missing = 66

export interface Rules {
  exclude: readonly string[]
  gitignore: boolean
}

export function ignoreOf({ exclude, gitignore }: Rules): Ignore {
  return new Ignore([...exclude, `/${draftPrefix}*`], { gitignore })
}

/** What a folder here holds. Throws where it is gone: that is no removal of all that it held. */
export async function snapshotHere(root: string, ignore: Ignore): Promise<Snapshot> {
  const found = new Map<string, Entry>()
  try {
    for await (const { path } of ignore.walk(root)) {
      const entry = await entryHere(bytesOf(root, path))
      if (entry !== undefined) found.set(path, entry)
    }
  } catch (error) {
    const isGone = (error as NodeJS.ErrnoException).code === 'ENOENT'
    throw new CliError(isGone ? `${root} is gone` : `${root} cannot be read: ${reasonOf(error)}`, {
      cause: error,
    })
  }
  return found
}

/** A path of bytes below a folder of this machine. */
export function bytesOf(root: string, path: string): Buffer {
  return Buffer.concat([Buffer.from(`${root}/`), Buffer.from(path, 'latin1')])
}

async function entryHere(path: Buffer): Promise<Entry | undefined> {
  try {
    const stats = await lstat(path, { bigint: true })
    const kind = kindOf(stats)
    if (kind === undefined) return undefined
    return {
      kind,
      size: Number(stats.size),
      seconds: Number(stats.mtimeNs / 1_000_000_000n),
      isExecutable: (Number(stats.mode) & executable) !== 0,
      target: kind === 'link' ? (await readlink(path, { encoding: 'buffer' })).toString('latin1') : '',
      stamp: `${stats.ino} ${stats.mtimeNs} ${stats.mode}`,
    }
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) return undefined
    throw error
  }
}

function kindOf(found: Pick<Dirent, 'isFile' | 'isDirectory' | 'isSymbolicLink'>): Entry['kind'] | undefined {
  if (found.isFile()) return 'file'
  if (found.isDirectory()) return 'folder'
  // Sockets, pipes and devices stay where they are.
  return found.isSymbolicLink() ? 'link' : undefined
}

const listing = `[ -d "$1" ] || exit ${missing}
cd -- "$1" && shift && LC_ALL=C exec find . -mindepth 1 "$@" -printf '%y %s %T@ %m %i %P\\0%l\\0'`

/** What a folder of a sandbox holds; undefined where it is not there. The answer is hostile. */
export async function snapshotThere(
  sandbox: Sandbox,
  root: string,
  { user, rules, ignore }: { user: string | undefined; rules: Rules; ignore: Ignore },
): Promise<Snapshot | undefined> {
  // "!" takes back, which find cannot.
  const isPlain = !rules.exclude.some((pattern) => pattern.startsWith('!'))
  const left = findArguments([...(isPlain ? rules.exclude : []), ...(rules.gitignore ? ['.git'] : [])])
  const remote = await sandbox.spawn('sh', { args: ['-c', listing, 'sh', root, ...left], user })
  const pieces: Uint8Array[] = []
  let errors = ''
  let bytes = 0
  for await (const { stream, data } of remote) {
    if (stream === 'stderr') {
      errors = (errors + Buffer.from(data).toString()).slice(-1000)
      continue
    }
    bytes += data.length
    if (bytes > listBytesMax) throw new CliError(`${sandbox.id}:${root} holds too many files`)
    pieces.push(data)
  }
  const status = await remote.exited
  if (status === missing) return undefined
  if (status > 1 || (status === 1 && !isWhole(errors, bytes))) {
    const hint = bytes === 0 ? 'the sandbox needs find of GNU findutils' : '--user names who reads there'
    throw new CliError(`${sandbox.id}:${root} cannot be listed: ${errors.trim()}`, { hint })
  }
  return parseListing(Buffer.concat(pieces).toString('latin1'), ignore)
}

/** Whether a listing lacks only what went away while it was made. What it could not read would be taken for removed. */
export function isWhole(errors: string, bytes: number): boolean {
  const lines = errors.split('\n').filter((line) => line !== '')
  return bytes > 0 && lines.every((line) => line.endsWith(': No such file or directory'))
}

/** Parses what `find` has printed. Names that lead out of the folder are not taken. */
export function parseListing(text: string, ignore: Ignore): Snapshot {
  const found = new Map<string, Entry>()
  const fields = text.split('\0')
  for (let index = 0; index + 1 < fields.length && found.size < entriesMax; index += 2) {
    const [, stamp = '', type = '', size, time, mode = '', path = ''] =
      /^(([a-zA-Z]) (\d+) (\d+)[.\d]* ([0-7]+) \d+) (.+)$/s.exec(fields[index] ?? '') ?? []
    const kind = ({ f: 'file', d: 'folder', l: 'link' } as const)[type]
    if (kind === undefined || path.split('/').some((part) => part === '' || part === '.' || part === '..')) continue
    if (ignore.excludesBelow({ path, isFolder: kind === 'folder' })) continue
    const isExecutable = (Number.parseInt(mode, 8) & executable) !== 0
    const target = kind === 'link' ? (fields[index + 1] ?? '') : ''
    found.set(path, {
      kind,
      size: Number(size),
      seconds: Number(time),
      isExecutable,
      target,
      stamp,
    })
  }
  return found
}
