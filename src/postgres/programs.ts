import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { ServiceError } from '../errors.ts'

const outputBytesMax = 4 * 1024 * 1024

/** Runs a program of PostgreSQL to its end. Throws `unavailable` with its reason behind `what`. */
export async function runProgram(
  [program = '', ...words]: readonly string[],
  what: string,
  options: { cwd?: string; timeoutMs?: number; env?: NodeJS.ProcessEnv } = {},
): Promise<void> {
  const { cwd = '/', timeoutMs = 0, env = programEnvironment() } = options
  const settings = { cwd, env, timeout: timeoutMs, maxBuffer: outputBytesMax }
  try {
    await promisify(execFile)(program, words, settings)
  } catch (error) {
    const { stdout = '', stderr = '', message } = error as { stdout?: string; stderr?: string; message: string }
    // pg_upgrade says on standard output what is wrong.
    const said = reasonIn(stderr) || reasonIn(stdout) || message
    throw new ServiceError('unavailable', `${what}: ${said}`, { cause: error })
  }
}

/** Of the server's environment programs get `PATH` alone. */
export function programEnvironment(): NodeJS.ProcessEnv {
  return { PATH: process.env['PATH'], LC_ALL: 'C.UTF-8' }
}

/** Whether a line gives a reason. What PostgreSQL tells sessions about its state gives none. */
function isReason(line: string): boolean {
  return !/the database system is (?:starting up|in recovery mode|shutting down|not )/.test(line)
}

/** Why a program of PostgreSQL ended: the message that it calls fatal, else its last lines. */
export function reasonIn(text: string): string {
  const lines = text.trim().split('\n')
  const fatal = lines.flatMap((line) => /\b(?:FATAL|PANIC): .*/.exec(line)?.[0] ?? []).filter(isReason)
  return (fatal.length > 0 ? fatal : lines).slice(-3).join(' ').slice(-600)
}
