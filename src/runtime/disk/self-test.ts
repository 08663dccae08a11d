/** Checks of the two file systems of a sandbox: the btrfs pool of its disk, and the overlay of its root. */
import { chown, mkdir, open, realpath, stat, statfs } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { CommandError, run } from '../command.ts'
import { lowBytesOf } from './space-watch.ts'
import { exists } from '../exists.ts'
import { hostToolAt } from '../hostd/index.ts'
import { hostToolIn } from '../host-names.ts'
import { fails, missing, oneLine, runSetup, versionText, works, type HostCheck } from '../self-test.ts'
import { idRange, openScratch } from '../scratch.ts'

const poolBytes = 256 * 1024 * 1024
const limitBytes = 8 * 1024 * 1024
const writtenBytes = 32 * 1024 * 1024

/** A btrfs pool in a loop file whose subvolumes have limits that hold, and snapshots. */
export const diskPoolCheck: HostCheck = {
  name: 'disk pool',
  required: true,
  async run({ dataDir }) {
    if ((await versionText('mkfs.btrfs', '--version')) === undefined) return missing('no mkfs.btrfs', runSetup)
    // On the file system of the data, if that exists.
    const parent = (await exists(dataDir)) ? dataDir : tmpdir()
    await using scratch = await openScratch(parent)
    const file = join(scratch.path, 'pool.img')
    const pool = join(scratch.path, 'pool')
    await makeSparse(file)
    await mkdir(pool)
    await run(['mkfs.btrfs', '--quiet', file])
    // Lazy, so that a process that looks at the mount does not prevent the unmount.
    scratch.defer(['umount', '--lazy', pool])
    await run(['mount', '-o', 'loop', file, pool])
    await run(['btrfs', 'quota', 'enable', pool])
    const disk = join(pool, 'disk')
    await run(['btrfs', 'subvolume', 'create', disk])
    await run(['btrfs', 'qgroup', 'limit', String(limitBytes), disk])
    if (!(await isBounded(join(disk, 'file')))) {
      return fails('limits of btrfs subvolumes do not hold', 'needs a kernel with btrfs qgroups')
    }
    await run(['btrfs', 'subvolume', 'snapshot', '-r', disk, join(pool, 'snapshot')])
    const space = await statfs(parent)
    const freeBytes = space.bavail * space.bsize
    const free = `${sizeText(freeBytes)} free`
    const lowBytes = lowBytesOf(space)
    if (freeBytes < lowBytes) {
      const advice = `with less than ${sizeText(lowBytes)} the server refuses what makes more data: make room in ${parent}`
      return fails(`${free} in ${parent}`, advice)
    }
    return works(`btrfs in a loop file; limits and snapshots hold; ${free} in ${parent}`)
  },
}

/**
 * The root of a sandbox: an overlay over the base image in the sandbox's own range of ids. Without a base image a folder beside it serves,
 * since the file system of the images decides.
 */
export const overlayCheck: HostCheck = {
  name: 'idmapped overlay',
  required: true,
  async run({ imageDir }) {
    const tool = hostToolIn(imageDir)
    if (!(await exists(tool))) return missing(`no ${tool}`, runSetup)
    // The upper folder lies where the bundles of sandboxes do.
    await using scratch = await openScratch('/run')
    const folder = (name: string): string => join(scratch.path, name)
    for (const name of ['upper', 'work', 'target']) await mkdir(folder(name))
    for (const name of ['upper', 'work']) await chown(folder(name), idRange.start, idRange.start)
    await using lower = await lowerIn(imageDir)
    scratch.defer(['umount', '--lazy', folder('target')])
    const folders = { target: folder('target'), upper: folder('upper'), work: folder('work') }
    const range = { start: idRange.start, count: idRange.size }
    const layers = [{ start: 0, path: lower.path }]
    await hostToolAt(tool)
      .runTool({ op: 'mount-overlay', ...folders, range, layers })
      .catch((cause: unknown) => {
        const advice = 'the images must lie on a file system that takes idmapped mounts, such as ext4, xfs or btrfs'
        throw new Error(`${oneLine(cause)}: ${advice}`, { cause })
      })
    const { uid } = await stat(folder('target/etc'))
    if (uid === idRange.start) return works('a base of root appears in the range of a sandbox')
    return fails(`the base appears as user ${uid}, not ${idRange.start}`, 'needs Linux 5.19 or newer')
  },
}

function sizeText(bytes: number): string {
  return bytes < 2 ** 30 ? `${Math.round(bytes / 2 ** 20)} MB` : `${Math.round(bytes / 2 ** 30)} GB`
}

async function makeSparse(file: string): Promise<void> {
  await using handle = await open(file, 'wx', 0o600)
  await handle.truncate(poolBytes)
}

async function isBounded(file: string): Promise<boolean> {
  try {
    await run(['dd', 'if=/dev/zero', `of=${file}`, 'bs=1M', `count=${writtenBytes / 2 ** 20}`, 'conv=fsync'])
    return false
  } catch (error) {
    if (error instanceof CommandError && /quota|No space/i.test(error.stderr)) return true
    throw error
  }
}

/** The base image, or a folder that is not empty. */
async function lowerIn(imageDir: string): Promise<{ path: string } & AsyncDisposable> {
  const base = await realpath(join(imageDir, 'base', 'rootfs')).catch(() => undefined)
  if (base !== undefined) return { path: base, [Symbol.asyncDispose]: async () => {} }
  const scratch = await openScratch(imageDir)
  await mkdir(join(scratch.path, 'etc'))
  return scratch
}
