import { isServiceError, ServiceError } from '../errors.ts'
import type { CreateOptions, Creation } from '../lib/creation.ts'
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
import { ExecOutputs } from './exec-outputs.ts'
import type { Attachment, ProcessInfo, ProcessOutput, SpawnRequest } from './ports/guest.ts'
import { demand, demandEnvs, demandInteger, demandPath } from './input.ts'
import type { Lifecycle } from './lifecycle.ts'
import { type ProcessKind, demandKind, newInternalProcessId, processKind } from './process-id.ts'
import type { Sandbox } from './sandbox.ts'

const runTimeoutSecondsDefault = 60
const timeoutSecondsMax = 2_592_000
const runKeepBytes = 8 * 1024 * 1024
const argumentsMax = 4096
const userPattern = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$/
const resultWaitMsMax = 1000
const waitMs = 60_000
const signalMax = 64
const terminalSizeMax = 4096

export class Exec implements ExecService {
  readonly #lifecycle: Lifecycle
  readonly #outputs = new ExecOutputs()

  constructor(lifecycle: Lifecycle) {
    this.#lifecycle = lifecycle
  }

  async run(orgId: string, sandboxId: string, input: RunCommand, options: RunOptions = {}): Promise<RunResult> {
    const { signal, sent } = options
    const id = newId('es-')
    const request = runRequest(id, input)
    return await this.#lifecycle.use(orgId, sandboxId, async (guest, sandbox) => {
      await guest.spawn(inside(sandbox, request))
      try {
        let process = await guest.process(id, waitMs, signal)
        while (process.running) process = await guest.process(id, waitMs, signal)
        const output = await this.#outputs.take(orgId, (bytesMax) => guest.output(id, bytesMax), sent)
        return { exitCode: process.exitCode ?? 0, ...outputText(output) }
      } finally {
        // Also kills it when the caller has gone.
        await guest.release(id).catch(() => undefined)
      }
    })
  }

  async runAsync(
    orgId: string,
    sandboxId: string,
    input: RunCommand,
    { creation }: CreateOptions = {},
  ): Promise<{ execId: string }> {
    const execId = creation?.id('es-') ?? newId('es-')
    await this.#spawn(orgId, sandboxId, runRequest(execId, input), creation)
    return { execId }
  }

  async result(orgId: string, sandboxId: string, execId: string, options: ResultOptions = {}): Promise<RunState> {
    const { waitMs: waitForMs = resultWaitMsMax, sent } = options
    demandKind(execId, 'exec')
    return await this.#lifecycle.use(orgId, sandboxId, async (guest) => {
      const process = await guest.process(execId, Math.min(waitForMs, resultWaitMsMax))
      const output = await this.#outputs.take(orgId, (bytesMax) => guest.output(execId, bytesMax), sent)
      const { running, exitCode } = process
      return { running, ...(exitCode === undefined ? {} : { exitCode }), ...outputText(output) }
    })
  }

  async start(
    orgId: string,
    sandboxId: string,
    input: StartExec,
    { creation }: CreateOptions = {},
  ): Promise<ProcessInfo> {
    const { maxRunAfterDisconnectSeconds, keep, keepBytes, internal } = input
    if (maxRunAfterDisconnectSeconds !== undefined) {
      demandInteger(maxRunAfterDisconnectSeconds, 'maxRunAfterDisconnect', 0, timeoutSecondsMax)
    }
    const id = internal ? (input.id ?? newInternalProcessId()) : (creation?.id('es-') ?? newId('es-'))
    const request = {
      ...spawnRequest(id, input),
      stdin: true,
      timeoutMs: (input.timeoutSeconds ?? 0) * 1000,
      ...(internal ? { privatePorts: true } : {}),
      ...(keep === undefined ? {} : { keep }),
      ...(keepBytes === undefined ? {} : { keepBytes }),
      ...(maxRunAfterDisconnectSeconds ? { maxRunAfterDisconnectMs: maxRunAfterDisconnectSeconds * 1000 } : {}),
    }
    return await this.#spawn(orgId, sandboxId, request, creation)
  }

  async list(orgId: string, sandboxId: string, kind: ProcessKind = 'exec'): Promise<ProcessInfo[]> {
    const processes = await this.#lifecycle.use(orgId, sandboxId, (guest) => guest.processes())
    return processes.filter((process) => processKind(process.id) === kind)
  }

  async attach(orgId: string, sandboxId: string, processId: string, options: AttachExec = {}): Promise<Attachment> {
    const { wake = true, kind = 'exec', ...attachOptions } = options
    demandKind(processId, kind)
    if (!wake) {
      const guest = await this.#lifecycle.guestIfRunning(orgId, sandboxId)
      if (!guest) throw new ServiceError('conflict', `sandbox ${sandboxId} does not run`)
      return await guest.attach(processId, attachOptions)
    }
    await this.#lifecycle.get(orgId, sandboxId)
    // An agent's attachment lasts as long as its session and is no sign of work.
    const release = kind === 'internal' ? undefined : this.#lifecycle.hold(sandboxId)
    try {
      const attachment = await this.#lifecycle.use(orgId, sandboxId, (guest) => guest.attach(processId, attachOptions))
      return release ? holding(attachment, release) : attachment
    } catch (error) {
      release?.()
      throw error
    }
  }

  async kill(
    orgId: string,
    sandboxId: string,
    processId: string,
    signal = 9,
    kind: ProcessKind = 'exec',
  ): Promise<void> {
    demandInteger(signal, 'signal', 1, signalMax)
    demandKind(processId, kind)
    await this.#lifecycle.use(orgId, sandboxId, (guest) => guest.signal(processId, signal))
  }

  async ports(orgId: string, sandboxId: string): Promise<number[]> {
    const guest = await this.#lifecycle.guestIfRunning(orgId, sandboxId)
    return guest ? await guest.ports() : []
  }

  async startPty(
    orgId: string,
    sandboxId: string,
    input: StartPty,
    { creation }: CreateOptions = {},
  ): Promise<ProcessInfo> {
    const { cols = 80, rows = 24, shell = '/bin/bash', envs = {}, cwd, user } = input
    demandTerminalSize(cols, rows)
    demand(shell.startsWith('/') && !shell.includes('\0'), 'shell', 'must be an absolute path')
    const command = { cmd: shell, args: [], envs, ...(cwd === undefined ? {} : { cwd }), ...(user ? { user } : {}) }
    const id = creation?.id('ps-') ?? newId('ps-')
    const request = { ...spawnRequest(id, command), pty: { cols, rows }, stdin: true }
    return await this.#spawn(orgId, sandboxId, request, creation)
  }

  async resizePty(orgId: string, sandboxId: string, ptyId: string, cols: number, rows: number): Promise<void> {
    demandTerminalSize(cols, rows)
    demandKind(ptyId, 'pty')
    await this.#lifecycle.use(orgId, sandboxId, (guest) => guest.resize(ptyId, cols, rows))
  }

  async deletePty(orgId: string, sandboxId: string, ptyId: string): Promise<void> {
    demandKind(ptyId, 'pty')
    await this.#lifecycle.use(orgId, sandboxId, (guest) => guest.release(ptyId))
  }

  /** A process that an earlier run of the request has started is answered as it is, for as long as the sandbox knows it. */
  async #spawn(orgId: string, sandboxId: string, request: SpawnRequest, creation?: Creation): Promise<ProcessInfo> {
    return await this.#lifecycle.use(orgId, sandboxId, async (guest, sandbox) => {
      try {
        return await guest.spawn(inside(sandbox, request))
      } catch (error) {
        if (creation === undefined || !isServiceError(error, 'conflict')) throw error
        return await guest.process(request.id, 0)
      }
    })
  }
}

// What is asked is checked before the sandbox is woken for it, so requests know the command alone and get the rest inside.
function runRequest(id: string, input: RunCommand): SpawnRequest {
  const timeoutSeconds = input.timeoutSeconds ?? runTimeoutSecondsDefault
  demandInteger(timeoutSeconds, 'timeout', 0, timeoutSecondsMax)
  return { ...spawnRequest(id, input), timeoutMs: timeoutSeconds * 1000, keepBytes: runKeepBytes }
}

function spawnRequest(id: string, input: RunCommand): SpawnRequest {
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
    envs,
    ...(cwd === undefined ? {} : { cwd }),
    ...(user === undefined ? {} : { user }),
  }
}

function inside(sandbox: Sandbox, request: SpawnRequest): SpawnRequest {
  return { ...request, envs: { ...sandbox.envs, ...request.envs } }
}

function outputText({ stdout, stderr, truncated }: ProcessOutput): Omit<RunResult, 'exitCode'> {
  return { stdout: stdout.toString(), stderr: stderr.toString(), ...(truncated ? { truncated } : {}) }
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

function demandTerminalSize(cols: number, rows: number): void {
  demandInteger(cols, 'cols', 1, terminalSizeMax)
  demandInteger(rows, 'rows', 1, terminalSizeMax)
}
