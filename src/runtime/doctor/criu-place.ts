import { chmod, lstat, mkdtemp, readdir, realpath, rm } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { unmountBelow } from '../disk/mounts.ts'
import type { HostTool } from '../hostd/index.ts'
import { Cgroups } from '../host/cgroups.ts'
import { isAlive, startTicksOf } from '../host/process.ts'
import { endCriu, endStrayTools } from '../host/strays.ts'

/** Not what TMPDIR names: that may be closed to others, and a trial finds what one with another TMPDIR has left. */
const temporaryDir = '/var/tmp'
/** The process that makes a place: its number and its start, in clock ticks from boot. */
const placeName = /^atoll-criu-(\d+)-(\d+)-\w+$/

/** Where one trial of CRIU works; all of it goes at the end. */
export interface CriuPlace extends AsyncDisposable {
  /** An empty folder that everybody may pass through: root in a container is nobody on the host. */
  path: string
  /** A control group of its own, from the root of the control groups. */
  cgroup: string
}

/**
 * Makes a place, and first removes those whose process was killed before it could. Without `hostd`, for CRIU by itself, what is
 * at work on them is left to end.
 */
export async function openCriuPlace(hostd: HostTool | undefined): Promise<CriuPlace> {
  const parent = await realpath(temporaryDir)
  await removeAbandoned(hostd, parent)
  const path = await mkdtemp(join(parent, `atoll-criu-${process.pid}-${startTicksOf('self')}-`))
  await chmod(path, 0o711)
  return { path, cgroup: `/${basename(path)}`, [Symbol.asyncDispose]: () => removePlace(hostd, parent, basename(path)) }
}

/** Folders and control groups each count alone: one of them may have been removed already. */
async function removeAbandoned(hostd: HostTool | undefined, parent: string): Promise<void> {
  const groups = await (await Cgroups.find()).children('')
  for (const name of new Set([...(await readdir(parent)), ...groups])) {
    const [, pid, startTicks] = placeName.exec(name) ?? []
    if (pid === undefined || isAlive({ pid: Number(pid), startTicks: Number(startTicks) })) continue
    if (!(await isOurs(join(parent, name)))) continue
    // What cannot be removed now is removed by a later trial, and stands in the way of none.
    await removePlace(hostd, parent, name).catch(() => undefined)
  }
}

/** Anybody may make a folder among temporary files, and lead whoever removes it elsewhere. */
async function isOurs(path: string): Promise<boolean> {
  const found = await lstat(path).catch(() => undefined)
  return found === undefined || (found.isDirectory() && found.uid === process.getuid?.())
}

async function removePlace(hostd: HostTool | undefined, parent: string, name: string): Promise<void> {
  const path = join(parent, name)
  try {
    // What is at work on it would make anew what is removed.
    if (hostd !== undefined) {
      await endStrayTools(hostd, [path])
      await endCriu(hostd, [path])
    }
  } finally {
    const cgroups = await Cgroups.find()
    // A frozen process does not end.
    await cgroups.thaw(`/${name}`)
    await cgroups.remove(`/${name}`)
    await unmountBelow(path)
    await rm(path, { recursive: true, force: true })
  }
}
