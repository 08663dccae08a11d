import { readFileSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { ServiceError } from '../../errors.ts'
import { CommandError, commandEnvironment, reportable, type CommandOptions } from '../command.ts'
import { removeFolders } from '../cleanup.ts'
import type { ProcessIdentity } from '../process.ts'
import { OciRuntimeError, type OciHost, type OciRuntime } from './oci-runtime.ts'

const startTimeoutMs = 30_000
/** How much longer the wait for stray calls may take than the calls themselves. */
const strayGraceMs = 30_000
const reasonCharsMax = 500

/** runc (1.1 or newer). Each call is one process. Containers depend neither on that process nor on this one. */
export function createRunc({
  runDir,
  sandboxesDir,
  dataDir,
  hostd,
  startGroups = async () => [],
}: OciHost): OciRuntime {
  const stateDir = `${runDir}/runc`

  /** Runs runc where it sees the mounts of this bundle and of no other, because it reads the table of mounts several times and copies it. */
  const runAlone = (
    { bundle, groups = [] }: { bundle?: string; groups?: readonly string[] | undefined },
    command: readonly string[],
    options: CommandOptions,
  ) => hostd.runProgram(command, { hide: sandboxesDir, keep: bundle, groups }, options)
  /** `detached`: without pipes, which a container would inherit and hold. */
  const call = async (
    bundle: string,
    options: RuncOptions & {
      log: string
      timeoutMs: number
      groups?: readonly string[] | undefined
    },
    args: readonly string[],
  ) => {
    try {
      const command = runcCommand(stateDir, options, args)
      await runAlone({ bundle, groups: options.groups }, command, { detached: true, timeoutMs: options.timeoutMs })
    } catch (cause) {
      const outcome = cause instanceof CommandError ? cause.outcome : 'runc gave no reason'
      const reason = (await runcFault(options.log, [runDir, dataDir])) || outcome
      const isTimeout = cause instanceof CommandError && cause.message.includes('took too long')
      throw new OciRuntimeError(`runc ${args[0]}`, reason, { cause, isTimeout })
    }
  }
  const started = (id: string): ProcessIdentity => {
    const found = runcState(stateDir, id)
    if (found === undefined) throw new Error(`runc has no state of sandbox ${id}`)
    return found
  }

  return {
    name: 'runc',
    program: 'runc',
    stateDir,
    canCheckpoint: true,

    run: async (id, bundle) => {
      const options = { log: `${bundle}/runc.log`, timeoutMs: startTimeoutMs, groups: await startGroups() }
      await call(bundle, options, ['run', '--detach', '--bundle', bundle, id])
      return started(id)
    },

    checkpoint: async (id, bundle, { criu, images, timeoutMs, leaveRunning, groups }) => {
      const keep = leaveRunning ? ['--leave-running'] : []
      const options = { criu, log: `${images}/runc.log`, timeoutMs, groups }
      await call(bundle, options, ['checkpoint', '--image-path', images, '--work-path', images, ...keep, id])
    },

    restore: async (id, bundle, { criu, images, timeoutMs, lazyPages }) => {
      const lazy = lazyPages ? ['--lazy-pages'] : []
      const options = { criu, log: `${images}/runc.log`, timeoutMs, groups: await startGroups() }
      const files = ['--image-path', images, '--work-path', images]
      await call(bundle, options, ['restore', '--detach', ...files, ...lazy, '--bundle', bundle, id])
      return started(id)
    },

    update: async (id, resources) => {
      const input = JSON.stringify(resources)
      await runAlone({}, runcCommand(stateDir, {}, ['update', '--resources', '-', id]), { input }).catch(
        (cause: unknown) => {
          if (!(cause instanceof CommandError) || !/busy|memory/i.test(cause.stderr)) throw cause
          throw new ServiceError('conflict', 'the processes of the sandbox hold more memory than that', { cause })
        },
      )
    },

    // A restore that was cut off leaves the root of the sandbox mounted here.
    delete: (id) => removeFolders(hostd, [`${stateDir}/${id}`]),
    state: async (id) => runcState(stateDir, id),
    list: () => readdir(stateDir).catch(() => []),

    awaitStrays: async (timeoutMs) => {
      const request = { op: 'await-dumps', runcRoot: stateDir, timeoutMs } as const
      return Number(await hostd.runTool(request, { timeoutMs: timeoutMs + strayGraceMs }))
    },
  }
}

/** Where runc finds CRIU, for the calls that need it, and where it writes what went wrong. */
export interface RuncOptions {
  /** Path of CRIU. */
  criu?: string
  /** Absolute path of a file that this call appends to. */
  log?: string
}

/**
 * The command line of one call of runc. `PATH` names the folder of CRIU: runc 1.1 looks there unless `--criu` says otherwise,
 * and runc 1.2 and newer ignore that option.
 */
export function runcCommand(
  stateDir: string,
  { criu, log }: RuncOptions,
  args: readonly string[],
): [string, ...string[]] {
  const path = criu === undefined ? [] : ['env', `PATH=${dirname(criu)}:${commandEnvironment()['PATH'] ?? ''}`]
  const logging = log === undefined ? [] : ['--log', log, '--log-format', 'json']
  return [...path, 'runc', '--root', stateDir, ...logging, ...args] as [string, ...string[]]
}

/** The last message in a log of runc, as one bounded line without `hostFolders`; empty without a message. */
export async function runcFault(log: string, hostFolders: readonly string[]): Promise<string> {
  const lines = (await readFile(log, 'utf8').catch(() => '')).trim().split('\n')
  return reportable(messageOf(lines.at(-1) ?? ''), hostFolders, reasonCharsMax)
}

function messageOf(line: string): string {
  try {
    const { msg } = JSON.parse(line) as { msg?: unknown }
    return typeof msg === 'string' ? msg : line
  } catch {
    return line
  }
}

/** The first process of a container as runc recorded it, whether it still runs or not. The file lies in memory, so the read does not yield. */
export function runcState(stateDir: string, id: string): ProcessIdentity | undefined {
  try {
    const state = JSON.parse(readFileSync(`${stateDir}/${id}/state.json`, 'utf8')) as {
      init_process_pid?: number
      init_process_start?: number
    }
    const { init_process_pid: pid, init_process_start: startTicks } = state
    return pid !== undefined && pid > 1 && startTicks !== undefined ? { pid, startTicks } : undefined
  } catch {
    return undefined
  }
}
