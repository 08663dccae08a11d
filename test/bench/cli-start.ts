import { spawnSync } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Comparison, summary } from './measure.ts'

const program = join(import.meta.dirname, '../../bin/atoll')
const rounds = 20
/** Nothing listens there: all of a command but the answer. */
const nowhere = 'http://127.0.0.1:2'

/** The processor time of a command, against that of a Node that does nothing. The first start fills the cache of the user and is not counted. */
export async function cliStartBench(): Promise<Comparison[]> {
  const home = await mkdtemp(join(tmpdir(), 'atoll-bench-cli-'))
  try {
    return [['--version'], ['help'], ['ls', '--url', nowhere]].map((argv) => {
      const atoll: number[] = []
      const other: number[] = []
      for (let round = -1; round < rounds; round += 1) {
        const atollMs = cpuMsOf([program, ...argv], home)
        const otherMs = cpuMsOf([process.execPath, '-e', '0'], home)
        if (round < 0) continue
        atoll.push(atollMs)
        other.push(otherMs)
      }
      const what = `CLI start, CPU: atoll ${argv[0]}`
      return { what, against: 'node -e 0', rounds, atoll: summary(atoll), other: summary(other) }
    })
  } finally {
    await rm(home, { recursive: true })
  }
}

/** User and system time of a program and of all that it starts. */
function cpuMsOf(argv: readonly string[], home: string): number {
  const script = 'TIMEFORMAT="%3U %3S"; time "$@" >/dev/null 2>&1'
  const env = { PATH: process.env['PATH'], HOME: home }
  const { stderr } = spawnSync('bash', ['-c', script, 'bash', ...argv], { env, encoding: 'utf8' })
  const [user, system] = stderr.trim().split(' ').map(Number)
  return ((user ?? Number.NaN) + (system ?? Number.NaN)) * 1000
}
