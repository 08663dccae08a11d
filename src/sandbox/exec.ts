import { isServiceError, ServiceError } from '../errors.ts'
import { Semaphore } from '../lib/async/semaphore.ts'
import type { CreateOptions, Creation } from '../lib/creation.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import { assertEnvs, assertInput, assertPath, assertUser } from './input.ts'
import type { Lifecycle } from './lifecycle.ts'
import type { Attachment, AttachOptions, ProcessInfo, ProcessOutput, SpawnRequest } from './ports/guest.ts'
import {
  type ProcessKind,
  assertKind,
  isOfClient,
  newInternalProcessId,
  processKind,
  runToEnd,
  smallBytesMax,
} from './process.ts'
import type { Sandbox } from './sandbox.ts'

export interface RunCommand {
  /** Without `args`, a `cmd` with a space runs under `sh -c`. */
  cmd: string
  args?: string[]
  envs?: Record<string, string>
  cwd?: string
  user?: string
  /** 0 means none. Default 60 for `run` and `runAsync`, none for `start`. */
  timeoutSeconds?: number
}

export interface StartExec extends RunCommand, Pick<SpawnRequest, 'keep' | 'keepBytes'> {
  maxRunAfterDisconnectSeconds?: number
  /** An internal process, such as an agent: not listed, no activity, and its ports are private. */
  internal?: boolean
  /** A process that an image starts: not listed and no activity either, but clients may reach its ports. */
  ofImage?: boolean
  /** Its input is empty. Default: it stays open for `attach`. */
  emptyInput?: boolean
  /** Id of an internal process (`newId('ag-')`), for callers that record it before the start. Throws `conflict` for a known one. */
  id?: string
}

export interface StartPty extends Pick<RunCommand, 'cwd' | 'envs' | 'user'> {
  cols: number
  rows: number
  shell?: string
  args?: string[]
}

export interface RunOptions {
  /** Ends the command when it aborts. */
  signal?: AbortSignal
  /** Settles when the caller has sent the result. A large output counts against {@link outputPermits} until then. */
  sent?: Promise<unknown>
}

export interface ResultOptions extends Pick<RunOptions, 'sent'> {
  /** At most 1000, the default. */
  waitMs?: number
}

export interface RunResult extends Output {
  exitCode: number
}

interface Output {
  /** Present and true when the time limit ended it: a command may exit with 124 by itself. */
  timedOut?: boolean
  stdout: string
  stderr: string
  /** Present and true when a stream passed 8 MiB and its beginning was dropped. */
  truncated?: true
}

export interface RunState extends Output {
  running: boolean
  exitCode?: number
}

export interface AttachExec extends AttachOptions {
  /** The kind that the id must have. Default `exec`. */
  kind?: ProcessKind
  /** With `false` a sandbox that does not run is not woken: `conflict`. Default true. */
  wake?: boolean
}

const runTimeoutSecondsDefault = 60
const runKeepBytes = 8 * 1024 * 1024
const argumentsMax = 4096
/** The client that has started a session attaches to it in its next request. */
const firstReaderMs = 10_000
const resultWaitMsMax = 1000

/** Requests are checked before a wake; the sandbox's environment is added after it. `protocol/http/exec.ts` bounds numbers. */
export class Exec {
  readonly #lifecycle: Lifecycle
  readonly #outputs = new BoundedOutputs()

  constructor(lifecycle: Lifecycle) {
    this.#lifecycle = lifecycle
  }

  /** Runs to the end. Past the timeout the process group dies and `exitCode` is 124. */
  async run(orgId: string, sandboxId: string, input: RunCommand, options: RunOptions = {}): Promise<RunResult> {
    const { signal, sent } = options
    const id = newId('es-')
    const request = runRequest(id, input)
    return await this.#lifecycle.use(orgId, sandboxId, async (guest, sandbox) => {
      const read = () => this.#outputs.take(orgId, (bytesMax) => guest.output(id, bytesMax), sent)
      const { output, ...end } = await runToEnd(guest, withSandboxDefaults(sandbox, request), signal, read)
      return { ...end, ...outputText(output) }
    })
  }

  /** Starts in the background. `result` has the outcome for ten minutes after the end. */
  async runAsync(
    orgId: string,
    sandboxId: string,
    input: RunCommand,
    options: CreateOptions = {},
  ): Promise<{ execId: string }> {
    const execId = options.creation?.id('es-') ?? newId('es-')
    await this.#spawn(orgId, sandboxId, runRequest(execId, input), options.creation)
    return { execId }
  }

  /** Waits up to `waitMs` for the end. */
  async result(orgId: string, sandboxId: string, execId: string, options: ResultOptions = {}): Promise<RunState> {
    const { waitMs = resultWaitMsMax, sent } = options
    assertKind(execId, 'exec')
    return await this.#lifecycle.use(orgId, sandboxId, async (guest) => {
      const { running, exitCode, timedOut } = await guest.process(execId, Math.min(waitMs, resultWaitMsMax))
      const output = await this.#outputs.take(orgId, (bytesMax) => guest.output(execId, bytesMax), sent)
      return { running, ...defined({ exitCode, timedOut }), ...outputText(output) }
    })
  }

  /** Starts an exec session that clients attach to. What it writes waits for the first of them up to 10 s; see {@link Attachment}. */
  async start(orgId: string, sandboxId: string, input: StartExec, options: CreateOptions = {}): Promise<ProcessInfo> {
    const {
      timeoutSeconds = 0,
      maxRunAfterDisconnectSeconds,
      keep,
      keepBytes,
      internal,
      ofImage,
      emptyInput = false,
    } = input
    const ofService = ofImage ? newId('im-') : internal ? (input.id ?? newInternalProcessId()) : undefined
    const id = ofService ?? options.creation?.id('es-') ?? newId('es-')
    const request = {
      ...spawnRequest(id, input),
      stdin: !emptyInput,
      timeoutMs: timeoutSeconds * 1000,
      ...defined({ keep, keepBytes, privatePorts: internal ? true : undefined }),
      ...defined({ readerMs: ofService === undefined ? firstReaderMs : undefined }),
      ...(maxRunAfterDisconnectSeconds ? { maxRunAfterDisconnectMs: maxRunAfterDisconnectSeconds * 1000 } : {}),
    }
    return await this.#spawn(orgId, sandboxId, request, options.creation)
  }

  /** The processes of one kind. It wakes the sandbox, as only its guest knows them. */
  async list(orgId: string, sandboxId: string, kind: ProcessKind = 'exec'): Promise<ProcessInfo[]> {
    const processes = await this.#lifecycle.use(orgId, sandboxId, (guest) => guest.processes())
    return processes.filter((process) => processKind(process.id) === kind)
  }

  /** The attachment keeps the sandbox alive until it is closed, except to an internal process. `not_found` for another kind. */
  async attach(orgId: string, sandboxId: string, processId: string, options: AttachExec = {}): Promise<Attachment> {
    const { wake = true, kind = 'exec', ...attachOptions } = options
    assertKind(processId, kind)
    if (!wake) {
      const guest = await this.#lifecycle.findRunningGuest(orgId, sandboxId)
      if (!guest) throw new ServiceError('conflict', `sandbox ${sandboxId} does not run`)
      return await guest.attach(processId, attachOptions)
    }
    return await this.#lifecycle.useOn(orgId, sandboxId, async (guest, _sandbox, release) => {
      const attachment = await guest.attach(processId, attachOptions)
      if (isOfClient(kind)) return releasedAtEnd(attachment, release)
      // An agent's attachment lasts as long as its session, so neither it nor that of a build counts as activity.
      release()
      return attachment
    })
  }

  /** Throws `not_found` for a process of another kind. */
  async kill(
    orgId: string,
    sandboxId: string,
    processId: string,
    signal = 9,
    kind: ProcessKind = 'exec',
  ): Promise<void> {
    assertKind(processId, kind)
    await this.#lifecycle.use(orgId, sandboxId, (guest) => guest.signal(processId, signal))
  }

  async startPty(orgId: string, sandboxId: string, input: StartPty, options: CreateOptions = {}): Promise<ProcessInfo> {
    const { cols, rows, shell = '/bin/bash', args = [], cwd, envs, user } = input
    assertInput(shell.startsWith('/') && !shell.includes('\0'), 'shell', 'must be an absolute path')
    // An empty user is the default one.
    const command = { cmd: shell, args, ...defined({ cwd, envs, user: user || undefined }) }
    const id = options.creation?.id('ps-') ?? newId('ps-')
    const request = { ...spawnRequest(id, command), pty: { cols, rows }, stdin: true }
    return await this.#spawn(orgId, sandboxId, request, options.creation)
  }

  async resizePty(orgId: string, sandboxId: string, ptyId: string, cols: number, rows: number): Promise<void> {
    assertKind(ptyId, 'pty')
    await this.#lifecycle.use(orgId, sandboxId, (guest) => guest.resize(ptyId, cols, rows))
  }

  async deletePty(orgId: string, sandboxId: string, ptyId: string): Promise<void> {
    assertKind(ptyId, 'pty')
    await this.#lifecycle.use(orgId, sandboxId, (guest) => guest.release(ptyId))
  }

  /** TCP ports with a listener inside, ascending; none unless the sandbox runs. Wakes nothing and is no activity. */
  async ports(orgId: string, sandboxId: string): Promise<number[]> {
    const guest = await this.#lifecycle.findRunningGuest(orgId, sandboxId)
    return guest ? await guest.ports() : []
  }

  /** A process that an earlier run of the request has started is answered as it is, for as long as the sandbox knows it. */
  async #spawn(orgId: string, sandboxId: string, request: SpawnRequest, creation?: Creation): Promise<ProcessInfo> {
    return await this.#lifecycle.use(orgId, sandboxId, async (guest, sandbox) => {
      try {
        return await guest.spawn(withSandboxDefaults(sandbox, request))
      } catch (error) {
        if (creation === undefined || !isServiceError(error, 'conflict')) throw error
        return await guest.process(request.id, 0)
      }
    })
  }
}

function runRequest(id: string, input: RunCommand): SpawnRequest {
  const { timeoutSeconds = runTimeoutSecondsDefault } = input
  return { ...spawnRequest(id, input), timeoutMs: timeoutSeconds * 1000, keepBytes: runKeepBytes }
}

function spawnRequest(id: string, { cmd, args, envs = {}, cwd, user }: RunCommand): SpawnRequest {
  assertInput(cmd.trim() !== '', 'cmd', 'must not be empty')
  assertInput(!cmd.includes('\0'), 'cmd', 'must not contain NUL')
  assertInput((args?.length ?? 0) <= argumentsMax, 'args', `must be at most ${argumentsMax}`)
  assertInput(!args?.some((argument) => argument.includes('\0')), 'args', 'must not contain NUL')
  assertEnvs(envs)
  if (cwd !== undefined) assertPath(cwd, 'cwd')
  if (user !== undefined) assertUser(user)
  const argv = args === undefined && cmd.includes(' ') ? ['sh', '-c', cmd] : [cmd, ...(args ?? [])]
  return { id, argv, envs, ...defined({ cwd, user }) }
}

/** Adds folder and user of the sandbox where the request has none. Commands of the service itself run as root and name their folder. */
function withSandboxDefaults({ envs, commandDefaults = {} }: Sandbox, request: SpawnRequest): SpawnRequest {
  const defaults = isOfClient(processKind(request.id)) ? commandDefaults : {}
  return { ...defaults, ...request, envs: { ...envs, ...request.envs } }
}

function outputText({ stdout, stderr, truncated }: ProcessOutput): Output {
  return { stdout: stdout.toString(), stderr: stderr.toString(), ...(truncated ? { truncated } : {}) }
}

function releasedAtEnd(attachment: Attachment, release: () => void): Attachment {
  const close = (options?: { comesBack?: boolean }) => {
    release()
    attachment.close(options)
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

/** Bounds the reads from sandboxes, and as many large outputs that are unsent. An output has at most 8 MiB of each stream. */
const outputPermits = { permitsPerKey: 4, permits: 16 }

/** Bounds outputs in memory until they are sent. Slow clients delay large outputs alone, their own organisation's first. */
class BoundedOutputs {
  readonly #reads = new Semaphore(outputPermits)
  readonly #unsent = new Semaphore(outputPermits)

  /** Reads an output (see `Guest.output`). A large one holds a permit until `sent` settles. */
  async take(
    orgId: string,
    read: (bytesMax?: number) => Promise<ProcessOutput>,
    sent?: Promise<unknown>,
  ): Promise<ProcessOutput> {
    const releaseRead = await this.#reads.acquire({ key: orgId })
    try {
      if (sent === undefined) return await read()
      const release = this.#unsent.tryAcquire({ key: orgId })
      if (release !== undefined) return await readWithPermit(release, read, sent)
      // A large output waits inside the guest: it must take no memory here, and the guest forgets what it has sent.
      const output = await smallOutput(read)
      if (output !== undefined) return output
    } finally {
      releaseRead()
    }
    return await readWithPermit(await this.#unsent.acquire({ key: orgId }), read, sent)
  }
}

async function readWithPermit(release: () => void, read: () => Promise<ProcessOutput>, sent: Promise<unknown>) {
  try {
    const output = await read()
    if (isSmall(output)) release()
    else void sent.then(release, release)
    return output
  } catch (error) {
    release()
    throw error
  }
}

async function smallOutput(read: (bytesMax: number) => Promise<ProcessOutput>): Promise<ProcessOutput | undefined> {
  try {
    const output = await read(smallBytesMax)
    return isSmall(output) ? output : undefined
  } catch (error) {
    if (isServiceError(error, 'too_large')) return undefined
    throw error
  }
}

function isSmall({ stdout, stderr }: ProcessOutput): boolean {
  return stdout.length + stderr.length <= smallBytesMax
}
