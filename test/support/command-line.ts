/** The command line against a world, as a user without a terminal runs it. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import type { World } from './world.ts'

const program = join(import.meta.dirname, '../../bin/atoll')

export interface Ended {
  status: number | null
  stdout: string
  stderr: string
}

export interface UnderWay {
  child: ChildProcess
  ended: Promise<Ended>
  /** Until standard error has it. */
  saying: (pattern: RegExp) => Promise<void>
}

export function beginAtoll({ origin, api }: World, argv: readonly string[], input = ''): UnderWay {
  const env = { ...process.env, ATOLL_URL: origin, ATOLL_API_KEY: api.key, HOME: '/nonexistent' }
  const child = spawn(program, argv, { stdio: ['pipe', 'pipe', 'pipe'], env })
  child.stdin.end(input)
  let said = ''
  child.stderr.on('data', (piece) => {
    said += String(piece)
  })
  const ended = Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]).then(
    ([stdout, stderr]) => ({ status: child.exitCode, stdout, stderr }),
  )
  const saying = async (pattern: RegExp) => {
    while (!pattern.test(said)) await once(child.stderr, 'data')
  }
  return { child, ended, saying }
}

export async function runAtoll(world: World, ...argv: string[]): Promise<Ended> {
  return await beginAtoll(world, argv).ended
}
