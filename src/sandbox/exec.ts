import { ServiceError } from '../errors.ts'
import { Gate } from '../lib/gate.ts'
import { newId } from '../lib/id.ts'
import type {
  AttachExec,
  ExecService,
  RunCommand,
  ResultOptions,
  RunOptions,
  RunResult,
  RunState,
  StartExec,
  StartPty,
} from './api.ts'
import type { Attachment, Guest, ProcessInfo, SpawnRequest } from './guest.ts'
import { demand, demandEnvs, demandInteger, demandPath } from './input.ts'
import type { Lifecycle } from './lifecycle.ts'
import { isClientProcess, newInternalProcessId } from './process-id.ts'
import type { Sandbox } from './sandbox.ts'

const runTimeoutSecondsDefault = 60
const timeoutSecondsMax = 2_592_000
const runKeepBytes = 8 * 1024 * 1024
/** Outputs of `runKeepBytes` and less that are in memory at one time, from the guest's answer until they were sent on. */
const outputsMax = 8
const argumentsMax = 4096
const userPattern = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$/
const resultWaitMsMax = 1000
const waitMs = 60_000
const signalMax = 64
const terminalSizeMax = 4096

export class Exec implements ExecService {
  readonly #lifecycle: Lifecycle
  readonly #outputs = new Gate(outputsMax)

  constructor(lifecycle: Lifecycle) {
    this.#lifecycle = lifecycle
  }

  async run(orgId: string, sandboxId: string, input: RunCommand, options: RunOptions = {}): Promise<RunResult> {
    const { signal, sent } = options
    return await this.#lifecycle.use(orgId, sandboxId, async (guest, sandbox) => {
      const id = newId('es-')
      await guest.spawn(runRequest(id, input, sandbox))
      try {
        let process = await guest.process(id, waitMs, signal)
        while (process.running) process = await guest.process(id, waitMs, signal)
        return { exitCode: process.exitCode ?? 0, ...(await this.#outputOf(guest, id, sent)) }
      } finally {
        // Also kills it when the caller has gone.
        await guest.release(id).catch(() => undefined)
      }
    })
  }

  async runAsync(orgId: string, sandboxId: string, input: RunCommand): Promise<{ execId: string }> {
    return await this.#lifecycle.use(orgId, sandboxId, async (guest, sandbox) => {
      const execId = newId('es-')
      await guest.spawn(runRequest(execId, input, sandbox))
      return { execId }
    })
  }

  async result(orgId: string, sandboxId: string, execId: string, options: ResultOptions = {}): Promise<RunState> {
    const { waitMs: waitForMs = resultWaitMsMax, sent } = options
    demandClientProcess(execId)
    return await this.#lifecycle.use(orgId, sandboxId, async (guest) => {
      const process = await guest.process(execId, Math.min(waitForMs, resultWaitMsMax))
      const output = await this.#outputOf(guest, execId, sent)
      const { running, exitCode } = process
      return { running, ...(exitCode === undefined ? {} : { exitCode }), ...output }
    })
  }

  async start(orgId: string, sandboxId: string, input: StartExec): Promise<ProcessInfo> {
    const { maxRunAfterDisconnectSeconds, keep, keepBytes, internal } = input
    if (maxRunAfterDisconnectSeconds !== undefined) {
      demandInteger(maxRunAfterDisconnectSeconds, 'maxRunAfterDisconnect', 0, timeoutSecondsMax)
    }
    return await this.#lifecycle.use(orgId, sandboxId, async (guest, sandbox) => {
      const id = internal ? (input.id ?? newInternalProcessId()) : newId('es-')
      return await guest.spawn({
        ...spawnRequest(id, input, sandbox),
        stdin: true,
        timeoutMs: (input.timeoutSeconds ?? 0) * 1000,
        ...(keep === undefined ? {} : { keep }),
        ...(keepBytes === undefined ? {} : { keepBytes }),
        ...(maxRunAfterDisconnectSeconds ? { maxRunAfterDisconnectMs: maxRunAfterDisconnectSeconds * 1000 } : {}),
      })
    })
  }

  async list(orgId: string, sandboxId: string, which: 'client' | 'internal' = 'client'): Promise<ProcessInfo[]> {
    const processes = await this.#lifecycle.use(orgId, sandboxId, (guest) => guest.processes())
    return processes.filter((process) => isClientProcess(process.id) === (which === 'client'))
  }

  async attach(orgId: string, sandboxId: string, execId: string, options: AttachExec = {}): Promise<Attachment> {
    const { wake = true, ...attachOptions } = options
    if (!wake) {
      const guest = await this.#lifecycle.guestIfRunning(orgId, sandboxId)
      if (!guest) throw new ServiceError('conflict', `sandbox ${sandboxId} does not run`)
      return await guest.attach(execId, attachOptions)
    }
    // An agent's attachment lasts as long as its session and is no sign of work.
    const release = isClientProcess(execId) ? this.#lifecycle.hold(sandboxId) : undefined
    try {
      const attachment = await this.#lifecycle.use(orgId, sandboxId, (guest) => guest.attach(execId, attachOptions))
      return release ? holding(attachment, release) : attachment
    } catch (error) {
      release?.()
      throw error
    }
  }

  async kill(orgId: string, sandboxId: string, execId: string, signal = 9): Promise<void> {
    demandInteger(signal, 'signal', 1, signalMax)
    await this.#lifecycle.use(orgId, sandboxId, (guest) => guest.signal(execId, signal))
  }

  async ports(orgId: string, sandboxId: string): Promise<number[]> {
    const guest = await this.#lifecycle.guestIfRunning(orgId, sandboxId)
    return guest ? await guest.ports() : []
  }

  async startPty(orgId: string, sandboxId: string, input: StartPty): Promise<ProcessInfo> {
    const { cols = 80, rows = 24, shell = '/bin/bash', envs = {}, cwd, user } = input
    demandTerminalSize(cols, rows)
    demand(shell.startsWith('/') && !shell.includes('\0'), 'shell', 'must be an absolute path')
    return await this.#lifecycle.use(orgId, sandboxId, async (guest, sandbox) => {
      const command = { cmd: shell, args: [], envs, ...(cwd === undefined ? {} : { cwd }), ...(user ? { user } : {}) }
      return await guest.spawn({ ...spawnRequest(newId('ps-'), command, sandbox), pty: { cols, rows }, stdin: true })
    })
  }

  async resizePty(orgId: string, sandboxId: string, ptyId: string, cols: number, rows: number): Promise<void> {
    demandTerminalSize(cols, rows)
    demandPty(ptyId)
    await this.#lifecycle.use(orgId, sandboxId, (guest) => guest.resize(ptyId, cols, rows))
  }

  async deletePty(orgId: string, sandboxId: string, ptyId: string): Promise<void> {
    demandPty(ptyId)
    await this.#lifecycle.use(orgId, sandboxId, (guest) => guest.release(ptyId))
  }

  /** Holds a place among the outputs in memory until the output was sent on. */
  async #outputOf(guest: Guest, id: string, sent?: Promise<unknown>): Promise<Omit<RunResult, 'exitCode'>> {
    const leave = await this.#outputs.enter()
    try {
      const { stdout, stderr, truncated } = await guest.output(id)
      void sent?.finally(leave)
      return { stdout: stdout.toString(), stderr: stderr.toString(), ...(truncated ? { truncated } : {}) }
    } catch (error) {
      leave()
      throw error
    } finally {
      if (sent === undefined) leave()
    }
  }
}

function runRequest(id: string, input: RunCommand, sandbox: Sandbox): SpawnRequest {
  const timeoutSeconds = input.timeoutSeconds ?? runTimeoutSecondsDefault
  demandInteger(timeoutSeconds, 'timeout', 0, timeoutSecondsMax)
  return { ...spawnRequest(id, input, sandbox), timeoutMs: timeoutSeconds * 1000, keepBytes: runKeepBytes }
}

function spawnRequest(id: string, input: RunCommand, sandbox: Sandbox): SpawnRequest {
  const { cmd, args, envs = {}, cwd, user, timeoutSeconds } = input
  demand(cmd.trim() !== '', 'cmd', 'must not be empty')
  demand(!cmd.includes('\0'), 'cmd', 'must not contain NUL')
  demand((args?.length ?? 0) <= argumentsMax, 'args', `must be at most ${argumentsMax}`)
  demand(!args?.some((argument) => argument.includes('\0')), 'args', 'must not contain NUL')
  demandEnvs(envs)
  if (cwd !== undefined) demandPath(cwd, 'cwd')
  if (user !== undefined) demand(userPattern.test(user), 'user', 'must be a user name or id')
  if (timeoutSeconds !== undefined) demandInteger(timeoutSeconds, 'timeout', 0, timeoutSecondsMax)
  // A whole command line in `cmd` is a wish for a shell.
  const argv = args === undefined && cmd.includes(' ') ? ['sh', '-c', cmd] : [cmd, ...(args ?? [])]
  return {
    id,
    argv,
    envs: { ...sandbox.envs, ...envs },
    ...(cwd === undefined ? {} : { cwd }),
    ...(user === undefined ? {} : { user }),
  }
}

function holding(attachment: Attachment, release: () => void): Attachment {
  const close = () => {
    release()
    attachment.close()
  }
  return {
    async *[Symbol.asyncIterator]() {
      try {
        yield* attachment
      } finally {
        release()
      }
    },
    write: (data) => attachment.write(data),
    end: () => attachment.end(),
    acknowledge: (offset) => attachment.acknowledge(offset),
    close,
    async [Symbol.asyncDispose]() {
      close()
    },
  }
}

function demandClientProcess(id: string): void {
  if (!isClientProcess(id)) throw new ServiceError('not_found', `no exec session ${id}`)
}

function demandPty(id: string): void {
  if (!id.startsWith('ps-')) throw new ServiceError('not_found', `no PTY session ${id}`)
}

function demandTerminalSize(cols: number, rows: number): void {
  demandInteger(cols, 'cols', 1, terminalSizeMax)
  demandInteger(rows, 'rows', 1, terminalSizeMax)
}
