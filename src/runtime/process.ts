import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

const pollMs = 2
const endTimeoutMs = 10_000

let currentBoot: string | undefined

/** The id of this boot of the machine. */
export function bootId(): string {
  currentBoot ??= readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
  return currentBoot
}

/** Distinguishes a process from a later one with the same number. */
export interface ProcessIdentity {
  pid: number
  /** Field 22 of `/proc/<pid>/stat`: clock ticks from boot to its start. */
  startTicks: number
}

/** Whether the process runs. Reads one kernel file without yielding, so a look at hundreds of sandboxes takes a few milliseconds. */
export function isAlive({ pid, startTicks }: ProcessIdentity): boolean {
  const fields = statOf(pid)
  return fields[0] !== 'Z' && fields[0] !== 'X' && Number(fields[19]) === startTicks
}

/** When a process was started; `NaN` for one that has ended. */
export function startTicksOf(pid: number | 'self'): number {
  return Number(statOf(pid)[19])
}

/** The fields of `/proc/<pid>/stat` from the third, the state, on; empty for a process that has ended. */
function statOf(pid: number | 'self'): string[] {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  } catch {
    return []
  }
}

/**
 * Ends a process and waits for its end. The init of a pid namespace takes all processes in it along. With `graceMs` the process
 * gets SIGTERM first and SIGKILL after that time.
 */
export async function end(identity: ProcessIdentity, graceMs = 0): Promise<void> {
  if (graceMs > 0 && isAlive(identity)) {
    send(identity.pid, 'SIGTERM')
    if (await endsWithin(identity, graceMs)) return
  }
  if (isAlive(identity)) send(identity.pid, 'SIGKILL')
  if (!(await endsWithin(identity, endTimeoutMs))) throw new Error(`process ${identity.pid} does not end`)
}

async function endsWithin(identity: ProcessIdentity, timeoutMs: number): Promise<boolean> {
  const until = Date.now() + timeoutMs
  while (isAlive(identity)) {
    if (Date.now() > until) return false
    await sleep(pollMs)
  }
  return true
}

/** Sends a signal; harmless when the process has just ended. */
export function send(pid: number, name: 'SIGTERM' | 'SIGKILL'): void {
  try {
    process.kill(pid, name)
  } catch {
    // It has just ended.
  }
}
