import { realpath, stat, statfs } from 'node:fs/promises'
import { dirname } from 'node:path'
import { mountOf } from '../disk/index.ts'
import { exists } from '../exists.ts'
import type { HostCheck } from './check.ts'

const mebibyte = 1024 * 1024
const poolMinMb = 1024
/** Hundreds of sandboxes: `/run` holds about 100 KB of each that runs. */
const runMinMb = 64

/** Programs of the host are started from the image folder: CRIU, and the tool that mounts. */
export const imageFolderCheck: HostCheck = {
  name: 'image folder',
  required: true,
  async run({ imageDir }) {
    const { target, options } = await mountOf(await existing(imageDir))
    if (options.includes('noexec')) {
      const advice = `choose another file system with ATOLL_IMAGE_DIR, or: mount -o remount,exec ${target}`
      return { state: 'fails', found: `${imageDir} lies on ${target}, which is mounted noexec`, advice }
    }
    const closed = await closedFolder(await existing(`${imageDir}/guest`))
    if (closed !== undefined) {
      const found = `${closed} is closed to the users of sandboxes, who find their programs below it`
      return { state: 'fails', found, advice: `chmod o+x ${closed}` }
    }
    return { state: 'works', found: `${imageDir}, on ${target}` }
  },
}

/** A pool that is there has its size; a new one takes most of what is free. */
export const dataFolderCheck: HostCheck = {
  name: 'data folder',
  required: true,
  async run({ dataDir }) {
    const freeMb = await freeMbIn(await existing(dataDir))
    const found = `${freeMb} MB free in ${dataDir}`
    if (freeMb >= poolMinMb || (await exists(`${dataDir}/pool.img`))) return { state: 'works', found }
    const advice = `the disk pool needs ${poolMinMb} MB: make room, or choose another folder with ATOLL_DATA_DIR`
    return { state: 'fails', found, advice }
  },
}

export const runFolderCheck: HostCheck = {
  name: '/run',
  required: false,
  async run() {
    const freeMb = await freeMbIn('/run')
    const found = `${freeMb} MB free for what sandboxes that run leave there`
    if (freeMb >= runMinMb) return { state: 'works', found }
    return { state: 'fails', found, advice: 'make it larger: mount -o remount,size=256M /run, and in /etc/fstab' }
  },
}

/** The innermost folder of a path that others than its owner cannot pass through; saved memory is restored as such a one. */
async function closedFolder(path: string): Promise<string | undefined> {
  if (((await stat(path)).mode & 0o001) === 0) return path
  return path === '/' ? undefined : closedFolder(dirname(path))
}

async function freeMbIn(folder: string): Promise<number> {
  const { bavail, bsize } = await statfs(folder)
  return Math.floor((bavail * bsize) / mebibyte)
}

/** The real path of a folder, or of the first one above it that is there. */
async function existing(folder: string): Promise<string> {
  return (await exists(folder)) ? await realpath(folder) : existing(dirname(folder))
}
