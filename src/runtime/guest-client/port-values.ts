/** Converts values of a guest to those of the `Guest` port. */
import { bytesOfPath } from '../../lib/byte-path.ts'
import { defined } from '../../lib/defined.ts'
import type { GuestProcess, GuestStat, GuestSystemProcess } from '../../protocol/guest.ts'
import type { FileStat, ProcessInfo, SystemProcess } from '../../sandbox/ports/guest.ts'

const secondsMin = -62_167_219_200
const secondsMax = 253_402_300_799

/** ISO 8601 with second precision; times outside the years 0 to 9999 are moved to the nearest one inside. */
function isoSeconds(seconds: number): string {
  const inside = Math.min(Math.max(seconds, secondsMin), secondsMax)
  return `${new Date(inside * 1000).toISOString().slice(0, 19)}Z`
}

export function processInfo(told: GuestProcess): ProcessInfo {
  const { startedSeconds, endedSeconds, exitCode, timedOut, ...process } = told
  const endedAt = endedSeconds === undefined ? undefined : isoSeconds(endedSeconds)
  return {
    ...process,
    ...defined({ exitCode, endedAt, timedOut: timedOut || undefined }),
    startedAt: isoSeconds(startedSeconds),
  }
}

const states: Record<string, SystemProcess['state']> = {
  R: 'running',
  S: 'sleeping',
  I: 'sleeping',
  D: 'waiting',
  T: 'stopped',
  t: 'stopped',
  Z: 'zombie',
  X: 'zombie',
}

export function systemProcess({ cpuMs, startedSeconds, state, ...process }: GuestSystemProcess): SystemProcess {
  const known = Object.hasOwn(states, state) ? states[state] : undefined
  return {
    ...process,
    user: process.user.toWellFormed(),
    command: process.command.toWellFormed(),
    state: known ?? 'unknown',
    cpuSeconds: cpuMs / 1000,
    startedAt: isoSeconds(startedSeconds),
  }
}

/** The field of a request that has this path. */
export function pathField(key: 'path' | 'from' | 'to' | 'name' | 'skip', path: string): Record<string, string> {
  if (path.isWellFormed()) return { [key]: path }
  return { [`${key}Base64`]: bytesOfPath(path)?.toString('base64') ?? '' }
}

export function fileStat<S extends Pick<GuestStat, 'modifiedSeconds'>>({
  modifiedSeconds,
  ...stat
}: S): Omit<S, 'modifiedSeconds'> & Pick<FileStat, 'modifiedAt'> {
  return { ...stat, modifiedAt: isoSeconds(modifiedSeconds) }
}
