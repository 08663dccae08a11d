import { chmod, lstat, mkdtemp, readdir, realpath, rm } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { unmountBelow } from '../disk/mounts.ts'
import type { HostTool } from '../hostd/index.ts'
import { Cgroups } from '../cgroups/index.ts'
import { isAlive, startTicksOf } from '../process.ts'
import { endCriu, endStrayTools } from '../cleanup.ts'

/** Not TMPDIR: it may be closed to other users, and a trial must find what a trial with another TMPDIR left. */
const temporaryDir = '/var/tmp'
/** Names the process that made the workspace: its pid and its start, in clock ticks from boot. */
const workspaceName = /^atoll-criu-(\d+)-(\d+)-\w+$/

/** The folder and the control group of one trial of CRIU. Both are removed at the end. */
export interface CriuWorkspace extends AsyncDisposable {
  /** An empty folder that every user can pass through: root in a container is unprivileged on the host. */
  path: string
  /** A control group of its own, from the root of the control groups. */
  cgroup: string
}

/**
 * Makes a workspace, after it has removed those that killed processes left. Without `hostd`, for CRIU by itself, programs that still
 * work on a removed workspace are left to end.
 */
export async function openCriuWorkspace(hostd: HostTool | undefined): Promise<CriuWorkspace> {
  const parent = await realpath(temporaryDir)
  await removeAbandoned(hostd, parent)
  const path = await mkdtemp(join(parent, `atoll-criu-${process.pid}-${startTicksOf('self')}-`))
  await chmod(path, 0o711)
  return {
    path,
    cgroup: `/${basename(path)}`,
    [Symbol.asyncDispose]: () => removeWorkspace(hostd, parent, basename(path)),
  }
}

/** Looks at folders and control groups separately: one of a pair may have been removed already. */
async function removeAbandoned(hostd: HostTool | undefined, parent: string): Promise<void> {
  const groups = await (await Cgroups.find()).children('')
  for (const name of new Set([...(await readdir(parent)), ...groups])) {
    const [, pid, startTicks] = workspaceName.exec(name) ?? []
    if (pid === undefined || isAlive({ pid: Number(pid), startTicks: Number(startTicks) })) continue
    if (!(await isOurs(join(parent, name)))) continue
    // A workspace that stays disturbs no trial, and a later one removes it.
    await removeWorkspace(hostd, parent, name).catch(() => undefined)
  }
}

/** Whether a folder is root's: any user can make one of such a name, or a link that leads the removal elsewhere. */
async function isOurs(path: string): Promise<boolean> {
  const found = await lstat(path).catch(() => undefined)
  return found === undefined || (found.isDirectory() && found.uid === process.getuid?.())
}

async function removeWorkspace(hostd: HostTool | undefined, parent: string, name: string): Promise<void> {
  const path = join(parent, name)
  try {
    // A running program would create again what is removed here.
    if (hostd !== undefined) {
      await endStrayTools(hostd, [path])
      await endCriu(hostd, [path])
    }
  } finally {
    const cgroups = await Cgroups.find()
    // A frozen process ignores SIGKILL, so thaw first.
    await cgroups.thaw(`/${name}`)
    await cgroups.remove(`/${name}`)
    await unmountBelow(path)
    await rm(path, { recursive: true, force: true })
  }
}
