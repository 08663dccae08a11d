import { createHash, type Hash } from 'node:crypto'
import { lstatSync, readdirSync, readFileSync, readlinkSync, type Stats } from 'node:fs'

const hexDigits = 32
const end = Buffer.from([0])
const separator = Buffer.from('/')

/**
 * What names an image: 128 bits of a SHA-256 over all that a sandbox can see of a folder, the same wherever that is the same.
 * For the folder itself and then, in the order of the bytes of their names, for each entry and what is in it:
 *
 *     <mode> <owner> <group> <path> NUL <content> NUL
 *
 * The mode is st_mode in octal, hence with the kind of the entry; the path begins at the folder, which is empty itself. The content is
 * the SHA-256 of the bytes of a file, where a symbolic link leads, the number of a device, and empty for all else. Times, links
 * between files, holes, extended attributes and the place on the disk do not count. Reads without giving way: for programs of setup.
 */
export function treeHash(folder: string): string {
  const hash = createHash('sha256')
  add(hash, Buffer.from(folder), Buffer.alloc(0))
  return hash.digest('hex').slice(0, hexDigits)
}

/** Names need not be text, so all paths are bytes. */
function add(hash: Hash, path: Buffer, relative: Buffer): void {
  const stats = lstatSync(path)
  hash
    .update(`${stats.mode.toString(8)} ${stats.uid} ${stats.gid} `)
    .update(relative)
    .update(end)
  hash.update(contentOf(path, stats)).update(end)
  if (!stats.isDirectory()) return
  const names = readdirSync(path, { encoding: 'buffer' })
  for (const name of names.toSorted((one, other) => Buffer.compare(one, other))) {
    const below = relative.length === 0 ? name : Buffer.concat([relative, separator, name])
    add(hash, Buffer.concat([path, separator, name]), below)
  }
}

function contentOf(path: Buffer, stats: Stats): string | Buffer {
  if (stats.isFile()) return createHash('sha256').update(readFileSync(path)).digest('hex')
  if (stats.isSymbolicLink()) return readlinkSync(path, { encoding: 'buffer' })
  return stats.isBlockDevice() || stats.isCharacterDevice() ? String(stats.rdev) : ''
}
