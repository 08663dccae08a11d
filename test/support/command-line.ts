/** The command line against a world, as a user without a terminal runs it. */
import assert from 'node:assert/strict'
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

export interface RunOptions {
  /** Without it there is no standard input. */
  input?: string | undefined
  env?: NodeJS.ProcessEnv
}

export function beginAtoll(
  { origin, api }: Pick<World, 'origin' | 'api'>,
  argv: readonly string[],
  { input, env = {} }: RunOptions = {},
): UnderWay {
  const child = spawn(program, argv, {
    stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    env: { PATH: process.env['PATH'], HOME: '/nonexistent', ATOLL_URL: origin, ATOLL_API_KEY: api.key, ...env },
  })
  assert.ok(child.stdout !== null && child.stderr !== null)
  const { stdout: output, stderr: errors } = child
  child.stdin?.on('error', () => undefined).end(input)
  let said = ''
  errors.on('data', (piece) => {
    said += String(piece)
  })
  const ended = Promise.all([text(output), text(errors), once(child, 'close')]).then(([stdout, stderr]) => ({
    status: child.exitCode,
    stdout,
    stderr,
  }))
  const saying = async (pattern: RegExp) => {
    const over = ended.then(() => Promise.reject(new Error(`it ended without ${String(pattern)}:\n${said}`)))
    while (!pattern.test(said)) await Promise.race([once(errors, 'data'), over])
    over.catch(() => undefined)
  }
  return { child, ended, saying }
}

export async function runAtoll(world: World, ...argv: string[]): Promise<Ended> {
  return await beginAtoll(world, argv).ended
}
