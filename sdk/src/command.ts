import type { Atoll, RequestOptions } from './atoll.ts'
import { type Output, Process } from './process.ts'
import { Tail } from './tail.ts'
import type { ProcessInfo, RunResult } from './types.ts'

/** Added to a command's own timeout: the sandbox may have to wake first. */
const runGraceMs = 60_000
const runTimeoutSecondsDefault = 60
/** Bytes of each stream in a result, as the server keeps of a command that nobody follows. */
const followedBytesMax = 8 * 1024 * 1024

export interface CommandOptions extends RequestOptions {
  /** Arguments. Without them a command with a blank runs under `sh -c`. */
  args?: readonly string[] | undefined
  envs?: Record<string, string> | undefined
  cwd?: string | undefined
  /** Default that of the sandbox. */
  user?: string | undefined
  /** After this time the command is killed. `run`: 60 by default; `spawn`: none. */
  timeoutSeconds?: number | undefined
}

export interface RunOptions extends CommandOptions {
  /**
   * Called with all of the output as it comes. The command waits for a promise that it returns. The result then has the last 8 MiB of each
   * stream, as without.
   */
  onOutput?: ((output: Output) => void | Promise<void>) | undefined
  /** With `onOutput`: kills the command after this time without a connection of this program. Default: never. */
  maxRunAfterDisconnectSeconds?: number | undefined
}

export interface FollowedResult extends RunResult {
  /** Bytes that `onOutput` did not get, if any: see {@link Process.lost}. */
  lost?: number
}

export interface SpawnOptions extends CommandOptions {
  /** Kills the command after this time without any connection. Default: never. */
  maxRunAfterDisconnectSeconds?: number | undefined
  /** See {@link AttachOptions.reconnects}. */
  reconnects?: boolean | undefined
}

/** `Sandbox.run`; `path` is that of the commands of a sandbox. */
export async function runCommand(
  client: Atoll,
  path: string,
  command: string,
  { onOutput, ...options }: RunOptions,
): Promise<FollowedResult> {
  const { signal, requestTimeoutMs, ...rest } = options
  const timeoutSeconds = rest.timeoutSeconds ?? runTimeoutSecondsDefault
  if (onOutput !== undefined) {
    return await follow(await spawnCommand(client, path, command, { ...options, timeoutSeconds }), onOutput, signal)
  }
  const atLeast = timeoutSeconds === 0 ? 2 ** 31 - 1 : timeoutSeconds * 1000 + runGraceMs
  return await client.json('POST', `${path}/run`, {
    json: commandOf(command, rest),
    signal,
    requestTimeoutMs: requestTimeoutMs ?? Math.min(atLeast, 2 ** 31 - 1),
  })
}

/** `Sandbox.spawn`. */
export async function spawnCommand(
  client: Atoll,
  path: string,
  command: string,
  options: SpawnOptions,
): Promise<Process> {
  const { signal, requestTimeoutMs, maxRunAfterDisconnectSeconds, reconnects, ...rest } = options
  const json = { ...commandOf(command, rest), maxRunAfterDisconnect: maxRunAfterDisconnectSeconds }
  const call = { json, creates: true, signal, requestTimeoutMs }
  const { sessionID } = await client.json<ProcessInfo>('POST', path, call)
  return new Process(client, `${path}/${encodeURIComponent(sessionID)}`, { signal, reconnects })
}

async function follow(
  process: Process,
  onOutput: (output: Output) => void | Promise<void>,
  signal: AbortSignal | undefined,
): Promise<FollowedResult> {
  const tails = { stdout: new Tail(followedBytesMax), stderr: new Tail(followedBytesMax) }
  try {
    for await (const output of process) {
      tails[output.stream].add(output.data)
      await onOutput(output)
    }
  } catch (error) {
    if (signal?.aborted) await process.kill().catch(() => undefined)
    throw error
  }
  const exitCode = await process.exited
  const lost = await process.lost()
  const { stdout, stderr } = tails
  const isCut = lost > 0 || stdout.isCut || stderr.isCut
  return {
    exitCode,
    ...(process.timedOut ? { timedOut: true } : {}),
    stdout: stdout.text,
    stderr: stderr.text,
    ...(isCut ? { truncated: true } : {}),
    ...(lost > 0 ? { lost } : {}),
  }
}

function commandOf(cmd: string, { args, envs, cwd, user, timeoutSeconds }: CommandOptions) {
  return { cmd, args, envs, cwd, user, timeout: timeoutSeconds }
}
