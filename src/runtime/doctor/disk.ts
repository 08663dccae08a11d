import { mkdir, open, statfs } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { CommandError, run } from '../command.ts'
import { exists } from '../exists.ts'
import { runSetup, type HostCheck } from './check.ts'
import { openScratch } from './scratch.ts'

const poolBytes = 256 * 1024 * 1024
const limitBytes = 8 * 1024 * 1024
const writtenBytes = 32 * 1024 * 1024

/** A btrfs pool in a loop file whose subvolumes have limits that hold, and snapshots. */
export const diskPoolCheck: HostCheck = {
  name: 'disk pool',
  required: true,
  async run({ dataDir }) {
    const version = await run(['mkfs.btrfs', '--version']).catch(() => undefined)
    if (version === undefined) return { state: 'missing', found: 'no mkfs.btrfs', advice: runSetup }
    // On the file system of the data, if that is there.
    const parent = (await exists(dataDir)) ? dataDir : tmpdir()
    await using scratch = await openScratch(parent)
    const file = join(scratch.path, 'pool.img')
    const pool = join(scratch.path, 'pool')
    await makeSparse(file)
    await mkdir(pool)
    await run(['mkfs.btrfs', '--quiet', file])
    // Lazy: a straggler that looks at the mount must not keep it.
    scratch.undo(['umount', '--lazy', pool])
    await run(['mount', '-o', 'loop', file, pool])
    await run(['btrfs', 'quota', 'enable', pool])
    const disk = join(pool, 'disk')
    await run(['btrfs', 'subvolume', 'create', disk])
    await run(['btrfs', 'qgroup', 'limit', String(limitBytes), disk])
    if (!(await isBounded(join(disk, 'file')))) {
      return {
        state: 'fails',
        found: 'limits of btrfs subvolumes do not hold',
        advice: 'needs a kernel with btrfs qgroups',
      }
    }
    await run(['btrfs', 'subvolume', 'snapshot', '-r', disk, join(pool, 'snapshot')])
    const { bavail, bsize } = await statfs(parent)
    const free = `${Math.round((bavail * bsize) / 2 ** 30)} GB free`
    return { state: 'works', found: `btrfs in a loop file; limits and snapshots hold; ${free} in ${parent}` }
  },
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
