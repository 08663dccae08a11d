import { spawn } from 'node:child_process'
import { constants } from 'node:os'
import type { HostdStatus } from '../protocol/hostd.ts'

export const commandOutputBytesMax = 4 * 1024 * 1024
const commandTimeoutMsDefault = 30_000
const reportedErrorChars = 2_000
/** How long to wait for the end of the output of a program that was killed. */
const killGraceMs = 5_000

export interface CommandOptions {
  /** Written to standard input, which is then closed. */
  input?: string
  /** Killed after this time, with all of its process group. Default 30 s. */
  timeoutMs?: number
  signal?: AbortSignal | undefined
  /** Gives the program no pipes, which processes that it leaves behind would hold. `stdout` is then empty. */
  detached?: boolean
}

export type Run = (argv: readonly [string, ...string[]], options?: CommandOptions) => Promise<string>

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/** The output of a program as one printable line for clients, without `hostFolders`. */
export function reportable(text: string, hostFolders: readonly string[], charsMax: number): string {
  const without = hostFolders.reduce((rest, folder) => rest.replaceAll(folder, ''), text)
  return without
    .replaceAll(/[^\x20-\x7e]+/g, ' ')
    .trim()
    .slice(0, charsMax)
}

/** A program of the host that could not be started, failed, ran too long or said too much. */
export class CommandError extends Error {
  readonly argv: readonly string[]
  readonly stderr: string
  readonly exitCode: number | undefined
  /** Such as `exit status 1`, `is not installed` or `took too long`. */
  readonly outcome: string

  constructor(argv: readonly string[], what: string, stderr: string, exitCode?: number, options?: ErrorOptions) {
    super(`${argv.slice(0, 3).join(' ')}: ${what}${stderr === '' ? '' : `: ${stderr.trim()}`}`, options)
    this.name = 'CommandError'
    this.argv = argv
    this.outcome = what
    this.stderr = stderr
    this.exitCode = exitCode
  }
}

export interface LaunchRequest {
  argv: readonly string[]
  input: string
  detached: boolean
}

export interface LaunchAnswer {
  /** `lost`: hostd ended, so the outcome of the program is unknown. */
  status: HostdStatus | 'lost'
  /** Exit status, signal number, or error number. */
  code: number
  stdout: Buffer
  stderr: Buffer
}

/** A running program. `kill` sends SIGKILL to its process group; `answer` resolves after that too. */
export interface Launched {
  answer: Promise<LaunchAnswer>
  kill: () => void
}

/**
 * Runs one program of the host without a shell and returns its standard output. This process forks, which stops it while the kernel copies
 * its page tables: use the `run` of a `Hostd` where there is one. Of our environment the program gets `PATH` alone. Throws
 * `CommandError`, or the signal's reason.
 */
export const run: Run = (argv, options = {}) => {
  const { input = '', detached = false } = options
  return outputOf(argv, () => launchHere({ argv, input, detached }), options)
}

/** The standard output of a launched program, within the bounds of `options`; `argv` names the program in errors. */
export async function outputOf(
  argv: readonly string[],
  launch: () => Launched,
  { timeoutMs = commandTimeoutMsDefault, signal }: CommandOptions,
): Promise<string> {
  signal?.throwIfAborted()
  if (argv.some((word) => word.includes('\0'))) throw new CommandError(argv, 'an argument holds a NUL', '')
  const { answer, kill } = launch()
  let stopped: Error | undefined
  const { promise: abandoned, reject: abandon } = Promise.withResolvers<never>()
  let grace: NodeJS.Timeout | undefined
  const stop = (reason: Error) => {
    stopped ??= reason
    kill()
    // A process outside its group may hold its pipes for ever.
    grace ??= setTimeout(() => abandon(reason), killGraceMs)
  }
  const timer = setTimeout(() => stop(new CommandError(argv, 'took too long', '')), timeoutMs)
  const onAbort = () => stop(signal?.reason as Error)
  signal?.addEventListener('abort', onAbort, { once: true })
  try {
    return output(argv, await Promise.race([answer, abandoned]), stopped)
  } finally {
    clearTimeout(timer)
    clearTimeout(grace)
    signal?.removeEventListener('abort', onAbort)
  }
}

/** Our own environment holds keys; programs of the host get the search path alone. */
export function commandEnvironment(): Record<string, string> {
  return { PATH: `${process.env['PATH'] ?? ''}:/usr/sbin:/usr/bin:/sbin:/bin`, LC_ALL: 'C' }
}

function output(argv: readonly string[], answer: LaunchAnswer, stopped: Error | undefined): string {
  if (stopped !== undefined) throw stopped
  const { status, code } = answer
  if (status === 'exited' && code === 0) return answer.stdout.toString('utf8')
  const stderr = answer.stderr.toString('utf8').slice(0, reportedErrorChars)
  switch (status) {
    case 'exited':
      throw new CommandError(argv, `exit status ${code}`, stderr, code)
    case 'signalled':
      throw new CommandError(argv, `killed by signal ${code}`, stderr)
    case 'too_much':
      throw new CommandError(argv, 'wrote too much', '')
    case 'lost':
      throw new CommandError(argv, 'is lost, as hostd has ended', '')
    case 'not_started':
      throw new CommandError(argv, code === constants.errno.ENOENT ? 'is not installed' : `cannot start (${code})`, '')
  }
}

/** Starts a program without hostd: at the start of a server, and in programs that run once, like doctor. */
function launchHere({ argv, input, detached }: LaunchRequest): Launched {
  const { promise: answer, resolve } = Promise.withResolvers<LaunchAnswer>()
  const pipe = detached ? 'ignore' : 'pipe'
  const child = spawn(argv[0] ?? '', argv.slice(1), {
    stdio: [input === '' ? 'ignore' : 'pipe', pipe, pipe],
    env: commandEnvironment(),
    // A group of its own, so that a kill reaches its children: they would keep the pipes open and run on without an owner.
    detached: true,
  })
  let isOver = false
  const kill = (): void => {
    if (child.pid === undefined || isOver) return
    try {
      process.kill(-child.pid, 'SIGKILL')
    } catch {
      // All of them have ended.
    }
    // A process outside its group may hold its output for ever.
    setTimeout(() => {
      child.stdout?.destroy()
      child.stderr?.destroy()
    }, killGraceMs).unref()
  }
  const stdout: Buffer[] = []
  const stderr: Buffer[] = []
  let bytes = 0
  let tooMuch = false
  const keep = (chunks: Buffer[]) => (chunk: Buffer) => {
    bytes += chunk.length
    if (bytes <= commandOutputBytesMax) chunks.push(chunk)
    else {
      tooMuch = true
      kill()
    }
  }
  child.stdout?.on('data', keep(stdout))
  child.stderr?.on('data', keep(stderr))
  // A program that exits before it has read its input is judged by its exit status.
  child.stdin?.on('error', () => undefined)
  child.stdin?.end(input)
  const end = (status: LaunchAnswer['status'], code: number) => {
    isOver = true
    resolve({ status, code, stdout: Buffer.concat(stdout), stderr: Buffer.concat(stderr) })
  }
  child.once('error', (error: NodeJS.ErrnoException) => end('not_started', Math.abs(error.errno ?? 0)))
  child.once('close', (code, signal) => {
    if (tooMuch) end('too_much', 0)
    else if (signal !== null) end('signalled', constants.signals[signal])
    else end('exited', code ?? 0)
  })
  return { answer, kill }
}
