/** The processes of this machine, as `/proc` has them. */
import { readdir, readFile } from 'node:fs/promises'
import type { HostNames } from '../../src/runtime/host-names.ts'

export interface LiveProcess {
  pid: number
  /** Its arguments, each with a NUL after it. */
  command: string
  /** Its control groups, a line for each hierarchy. */
  groups: string
  parent: number
}

/** Those that live. What has died holds nothing, however late the machine's init takes note of it. */
export async function liveProcesses(): Promise<LiveProcess[]> {
  const names = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const found = await Promise.all(
    names.map(async (name) => {
      // Each may end meanwhile.
      const [command = '', groups = '', status = ''] = await Promise.all(
        ['cmdline', 'cgroup', 'status'].map((file) => readFile(`/proc/${name}/${file}`, 'utf8').catch(() => '')),
      )
      const [, parent] = /^PPid:\s+(\d+)$/m.exec(status) ?? []
      const isDead = parent === undefined || /^State:\s+[ZX]/m.test(status)
      return isDead ? [] : [{ pid: Number(name), command, groups, parent: Number(parent) }]
    }),
  )
  return found.flat()
}

/**
 * Those of a server and its sandboxes, by what each names or belongs to: the folder in `/run` or the control groups. Not the program
 * of the disk, which names neither.
 */
export async function processesOfServer({ hash }: HostNames): Promise<number[]> {
  const isOwn = ({ pid, command, groups }: LiveProcess) =>
    pid !== process.pid && (command + groups).includes(`atoll-${hash}`)
  return (await liveProcesses()).filter(isOwn).map(({ pid }) => pid)
}
