import type { ProcessInfo, Sandbox, SystemProcess } from 'atoll-sdk'
import { askedCommand, isShell } from './shell.ts'

/** Times of processes and terminals are told in whole seconds. */
const startedApartMs = 1000
/** Of what starts the terminals. */
const guestPid = 1

/** The commands that end with a terminal; undefined where that cannot be told. It wakes the sandbox. */
export async function runningCommands(sandbox: Sandbox, info: ProcessInfo): Promise<string[] | undefined> {
  const asked = askedCommand(info)
  if (asked !== undefined) return [asked.join(' ')]
  const processes = (await sandbox.processes()).filter(({ state }) => state !== 'zombie')
  const childrenOf = (pid: number) => processes.filter(({ parentPid }) => parentPid === pid)
  const runningIn = (leader: SystemProcess) => {
    const [program = ''] = leader.command.split(' ', 1)
    return isShell(program) ? childrenOf(leader.pid) : [leader]
  }
  const leaders = childrenOf(guestPid)
  const startedAtMs = Date.parse(info.startedAt)
  // A hibernation makes all processes younger than the terminal.
  const own = leaders.filter(({ startedAt }) => Math.abs(Date.parse(startedAt) - startedAtMs) <= startedApartMs)
  const [leader] = own
  if (leader !== undefined && own.length === 1) return runningIn(leader).map(({ command }) => command)
  return leaders.every((one) => runningIn(one).length === 0) ? [] : undefined
}
