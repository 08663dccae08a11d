/** Checks of the folders of an installation: images, data, `/run`. */
import { readlink, realpath, stat, statfs } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { mountOf } from '../disk/index.ts'
import { exists } from '../exists.ts'
import { quarantinedIn } from '../host/quarantine.ts'
import { fails, missing, runSetup, works, type HostCheck } from '../self-test.ts'

const mebibyte = 1024 * 1024
const poolMinMb = 1024
/** Enough for hundreds of sandboxes: each running one takes about 100 KB of `/run`. */
const runMinMb = 64

/** The server starts programs from the image folder: CRIU and atoll-hostd. */
export const imageFolderCheck: HostCheck = {
  name: 'image folder',
  required: true,
  async run({ imageDir }) {
    const { target, options } = await mountOf(await existing(imageDir))
    if (options.includes('noexec')) {
      const advice = `choose another file system with ATOLL_IMAGE_DIR, or: mount -o remount,exec ${target}`
      return fails(`${imageDir} lies on ${target}, which is mounted noexec`, advice)
    }
    const closed = await closedFolder(await existing(`${imageDir}/guest`))
    if (closed === undefined) return works(`${imageDir}, on ${target}`)
    const found = `${closed} is closed to the users of sandboxes, who find their programs below it`
    return fails(found, `chmod o+x ${closed}`)
  },
}

/** Checks the space for the disk pool: an existing pool has its size, a new one takes most of the free space. */
export const dataFolderCheck: HostCheck = {
  name: 'data folder',
  required: true,
  async run({ dataDir }) {
    const freeMb = await freeMbIn(await existing(dataDir))
    const found = `${freeMb} MB free in ${dataDir}`
    if (freeMb >= poolMinMb || (await exists(`${dataDir}/pool.img`))) return works(found)
    return fails(found, `the disk pool needs ${poolMinMb} MB: make room, or choose another folder with ATOLL_DATA_DIR`)
  },
}

export const runFolderCheck: HostCheck = {
  name: '/run',
  required: false,
  async run() {
    const freeMb = await freeMbIn('/run')
    const found = `${freeMb} MB free for what sandboxes that run leave there`
    if (freeMb >= runMinMb) return works(found)
    return fails(found, 'make it larger: mount -o remount,size=256M /run, and in /etc/fstab')
  },
}

/** Lists what starts of the server have moved to quarantine. It never fails. */
export const quarantineCheck: HostCheck = {
  name: 'quarantine',
  required: false,
  async run({ dataDir }) {
    const [oldest, ...others] = await quarantinedIn(dataDir)
    if (oldest === undefined) return works('empty')
    const since = oldest.since.toISOString().slice(0, 10)
    return works(`${others.length + 1} sandboxes and checkpoints, since ${since}; npm run quarantine lists them`)
  },
}

/** Checks of what setup installs for all servers of the machine: a link, and the file that setup writes last behind it. */
export const imageChecks: HostCheck[] = [
  installed('base image', 'base', 'rootfs/usr/local/bin/node'),
  installed('guest', 'guest', 'guest'),
  installed('host helper', 'hostd', 'atoll-hostd'),
  installed('agent', 'agent', 'app/src/agent/main.ts'),
]

function installed(name: string, link: string, file: string): HostCheck {
  return {
    name,
    required: true,
    async run({ imageDir }) {
      const target = await readlink(join(imageDir, link)).catch(() => undefined)
      if (target === undefined) return missing(`no ${join(imageDir, link)}`, runSetup)
      const path = join(imageDir, target, file)
      if (!(await exists(path))) return fails(`no ${path}`, `remove ${join(imageDir, target)}, then ${runSetup}`)
      const { mtime } = await stat(path)
      return works(`${target}, of ${mtime.toISOString().slice(0, 10)}`)
    },
  }
}

/** The innermost folder of a path that other users cannot pass through: CRIU restores memory as another user than the folder's owner. */
async function closedFolder(path: string): Promise<string | undefined> {
  if (((await stat(path)).mode & 0o001) === 0) return path
  return path === '/' ? undefined : closedFolder(dirname(path))
}

async function freeMbIn(folder: string): Promise<number> {
  const { bavail, bsize } = await statfs(folder)
  return Math.floor((bavail * bsize) / mebibyte)
}

/** The real path of a folder, or of its first existing parent. */
async function existing(folder: string): Promise<string> {
  return (await exists(folder)) ? await realpath(folder) : existing(dirname(folder))
}
