import { readdirSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { ServiceError } from '../../errors.ts'
import type { Cgroups } from './cgroup.ts'
import { send } from './process.ts'

const attempts = 200
const pauseMaxMs = 5
/** System calls in which a process waits until its child has begun a program of its own: clone, clone3 and vfork. */
const vforkCalls = new Set(process.arch === 'arm64' ? ['220', '435'] : ['56', '58', '435'])

/**
 * Freezes a sandbox where CRIU can take hold of all that runs in it; the caller thaws. Throws `conflict` when no such moment
 * comes within a second or so: a dump would wait for one and hold the sandbox meanwhile.
 */
export async function freezeForDump(cgroups: Cgroups, group: string): Promise<void> {
  for (let attempt = 0; attempt < attempts; attempt += 1) {
    const stopped = (await cgroups.members(group)).filter(isStopped)
    // CRIU freezes too, but looks only ten times a second whether it has worked.
    await cgroups.freeze(group)
    if (!(await cgroups.members(group)).some(isVforking)) {
      // The kernel lets no debugger at a process that is both frozen and stopped. The second signal waits until the
      // process can run again, here and wherever it is restored.
      for (const process of stopped) {
        send(process, 'SIGCONT')
        send(process, 'SIGSTOP')
      }
      return
    }
    await cgroups.thaw(group)
    // What starts programs in a rhythm is not met at the same beat again.
    await sleep(Math.random() * pauseMaxMs)
  }
  const reason = 'one of its processes has borrowed its memory to a child (vfork) and does not get it back'
  throw new ServiceError('conflict', `the memory of the sandbox cannot be saved: ${reason}`)
}

/** Whether a signal has stopped a process, such as a job in the background of a terminal. */
function isStopped(pid: number): boolean {
  const stat = read(`/proc/${pid}/stat`)
  return stat.slice(stat.lastIndexOf(')') + 2).startsWith('T')
}

/** A thread that waits so takes no notice of a debugger, and its child, frozen too, never lets it go. */
function isVforking(pid: number): boolean {
  const tasks = `/proc/${pid}/task`
  return names(tasks).some((thread) => vforkCalls.has(read(`${tasks}/${thread}/syscall`).split(' ', 1)[0] ?? ''))
}

/** Small files of the kernel are read without yielding: the sandbox stands still meanwhile. */
function read(path: string): string {
  try {
    return readFileSync(path, 'latin1')
  } catch {
    return ''
  }
}

function names(path: string): string[] {
  try {
    return readdirSync(path)
  } catch {
    return []
  }
}
