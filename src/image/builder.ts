import { setTimeout as sleep } from 'node:timers/promises'
import { ignoreNotFound, ServiceError } from '../errors.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import {
  type Checkpoint,
  type CheckpointKind,
  type ProcessKind,
  type Sandbox,
  type SandboxService,
  type StartExec,
  startDefaults,
} from '../sandbox/index.ts'
import type { BuildFiles } from './build-files.ts'
import type { Emit } from './build-logs.ts'
import type { BuildEvent, ImageLayer } from './image.ts'
import type { ManifestOutline } from './manifest.ts'
import type { ImageServiceDeps } from './service.ts'
import { envsOf, type FileOutline, runStep, type Step, type StepCommand, summaryOf } from './steps.ts'

export interface BuilderContext extends Pick<ImageServiceDeps, 'store' | 'sandboxes' | 'limits' | 'log'> {
  files: BuildFiles
}

export interface Build {
  orgId: string
  outline: ManifestOutline
  layerHashes: readonly string[]
  /** The key of the build's files in `BuildFiles`. */
  key: string
  /** What the build sandbox starts from when no layer is there. */
  origin: Origin
  /** The default folder of commands, which an OCI image may lack. */
  cwd?: string
  /** Least memory of the image. */
  memoryMb: number
}

/** An installed image by name, or a checkpoint. */
export type Origin = { image: string } | { checkpointId: string }

const builderMemoryMbDefault = 4096
const builderCpuCount = 2
/** Builds are root's, also on an image with a user of its own. */
const asRoot = { user: 'root' } as const
const readyPollMs = 100
const readyTimeoutSeconds = 10
const outputTailBytes = 16 * 1024
const stderrInMessage = 500

/**
 * Builds an image in a sandbox of its organisation and returns its checkpoint. The state after each step becomes a layer, from which a
 * later build goes on whose first steps are the same. Throws `build_failed` with `step`, `type`, `exitCode` and `stderr` when a step
 * fails. Nothing but layers and the checkpoint is left, also after an abort.
 */
export async function buildImage(
  context: BuilderContext,
  build: Build,
  emit: Emit,
  signal: AbortSignal,
): Promise<string> {
  const { limits, sandboxes, log } = context
  const { orgId, outline } = build
  const tooLong = new ServiceError('build_failed', `the build takes longer than ${limits.buildMs / 1000} seconds`)
  const deadline = new AbortController()
  const timer = setTimeout(() => deadline.abort(tooLong), limits.buildMs).unref()
  const ended = AbortSignal.any([signal, deadline.signal])
  const sandboxId = newId('sb-build-')
  try {
    const { layer, done } = await startingLayer(context, build)
    const sandbox = await startSandbox(context, build, sandboxId, layer)
    ended.throwIfAborted()
    if (build.cwd !== undefined) await sandboxes.files.mkdir(orgId, sandboxId, build.cwd, asRoot)
    const work = new RunningBuild(context, build, { sandbox, emit, signal: ended })
    const { steps } = outline
    const reused = done === 0 ? '' : `, the first ${done} reused`
    const count = `${steps.length} ${steps.length === 1 ? 'step' : 'steps'}`
    await emit(logOf(0, 'build', `building ${count}${reused} in ${sandboxId}`))
    for (const [index, step] of steps.slice(0, done).entries()) await work.skip(step, index + 1)
    for (let index = done; index < steps.length; index++) await work.step(steps[index] as Step, index + 1)
    return await work.finish()
  } catch (error) {
    throw ended.aborted ? ended.reason : error
  } finally {
    clearTimeout(timer)
    const removed = sandboxes.delete(orgId, sandboxId).catch(ignoreNotFound)
    await removed.catch((error: unknown) =>
      log.error({ err: error, sandboxId }, 'the sandbox of a build could not be removed'),
    )
  }
}

/** The newest layer that is there, and the number of steps in it. */
async function startingLayer(
  { store, sandboxes }: BuilderContext,
  { orgId, layerHashes }: Build,
): Promise<{ layer?: ImageLayer; done: number }> {
  const byHash = new Map((await store.layers(orgId, layerHashes)).map((layer) => [layer.hash, layer]))
  for (let done = layerHashes.length; done > 0; done--) {
    const layer = byHash.get(layerHashes[done - 1] ?? '')
    if (layer === undefined) continue
    if (await readyCheckpoint(sandboxes, orgId, layer.checkpointId)) return { layer, done }
    // The data of the layer is gone.
    await store.deleteLayer(orgId, layer.hash)
  }
  return { done: 0 }
}

/** The checkpoint if it is ready; undefined when it is gone or has lost its data. */
export async function readyCheckpoint(
  { checkpoints }: SandboxService,
  orgId: string,
  id: string,
): Promise<Checkpoint | undefined> {
  const checkpoint = await checkpoints.settled(orgId, id).catch(ignoreNotFound)
  return checkpoint?.status === 'ready' ? checkpoint : undefined
}

async function startSandbox(
  { sandboxes, limits }: BuilderContext,
  { orgId, outline, origin }: Build,
  id: string,
  layer: ImageLayer | undefined,
): Promise<Sandbox> {
  const sizes = {
    id,
    memoryMb: outline.builderMemoryMB ?? builderMemoryMbDefault,
    cpuCount: builderCpuCount,
    diskMb: limits.builderDiskMb,
    timeoutSeconds: 0,
  }
  const from = layer === undefined ? origin : { checkpointId: layer.checkpointId }
  const { sandbox } =
    'image' in from
      ? await sandboxes.create(orgId, { ...sizes, image: from.image })
      : await sandboxes.checkpoints.start(orgId, from.checkpointId, sizes)
  return sandbox
}

interface Running {
  sandbox: Sandbox
  emit: Emit
  signal: AbortSignal
}

class RunningBuild {
  readonly #context: BuilderContext
  readonly #build: Build
  readonly #running: Running
  /** Variables of the `env` steps so far. */
  #envs: Record<string, string> = {}

  constructor(context: BuilderContext, build: Build, running: Running) {
    this.#context = context
    this.#build = build
    this.#running = running
  }

  /** Skips a step that the starting layer has. */
  async skip(step: Step, number: number): Promise<void> {
    this.#setEnvs(step)
    await this.#log(number, step.type, `${this.#position(number)} ${summaryOf(step)}: reused`)
  }

  async step(step: Step, number: number): Promise<void> {
    await this.#log(number, step.type, `${this.#position(number)} ${summaryOf(step)}`)
    const startedMs = performance.now()
    await runStep(step, {
      run: (command) => this.#run(command, step.type, number),
      makeFolder: (path) => this.#makeFolder(path),
      write: (path, file) => this.#write(path, file),
    })
    this.#setEnvs(step)
    await this.#saveLayer(number)
    const seconds = ((performance.now() - startedMs) / 1000).toFixed(1)
    await this.#log(number, step.type, `${this.#position(number)} done in ${seconds} s`)
  }

  /** Starts what the image is to run, and saves it. Returns the checkpoint. */
  async finish(): Promise<string> {
    const { outline, orgId, memoryMb } = this.#build
    const { sandbox } = this.#running
    const number = outline.steps.length + 1
    if (outline.startCommand !== undefined) await this.#startProcesses(outline.startCommand, number)
    await this.#log(number, 'checkpoint', outline.memory ? 'saving files and memory' : 'saving files')
    // A program that needs more memory fails here, not in each sandbox.
    if (outline.memory) await this.#context.sandboxes.scaling.scale(orgId, sandbox.id, memoryMb)
    return await this.#checkpoint(outline.memory ? 'full' : 'disk_only', outline.defaults)
  }

  #setEnvs(step: Step): void {
    this.#envs = { ...this.#envs, ...envsOf(step) }
  }

  async #saveLayer(number: number): Promise<void> {
    const { orgId, layerHashes } = this.#build
    const hash = layerHashes[number - 1] ?? ''
    await this.#context.store.putLayer({ orgId, hash, checkpointId: await this.#checkpoint('disk_only') })
  }

  /** A layer has the defaults of the origin alone, as other images stand on it too. */
  async #checkpoint(kind: CheckpointKind, defaults: ManifestOutline['defaults'] = { envs: {} }): Promise<string> {
    const { orgId, memoryMb } = this.#build
    const { sandbox, signal } = this.#running
    signal.throwIfAborted()
    const { checkpoints } = this.#context.sandboxes
    const id = newId('cp-')
    const { envs, cwd, user } = defaults
    const { cpuCount, diskMb } = startDefaults
    const sandboxConfig = {
      ...{ memoryMb, cpuCount, diskMb },
      envs: { ...sandbox.envs, ...envs },
      commandDefaults: { ...sandbox.commandDefaults, ...defined({ cwd, user }) },
    }
    await checkpoints.create(orgId, sandbox.id, { id, name: checkpointName(id), kind, owner: 'image', sandboxConfig })
    const { status, error } = await checkpoints.settled(orgId, id)
    if (status !== 'ready')
      throw new ServiceError('unavailable', `the image could not be saved: ${error ?? 'no reason known'}`)
    return id
  }

  async #makeFolder(path: string): Promise<void> {
    const { sandbox, signal } = this.#running
    signal.throwIfAborted()
    await this.#context.sandboxes.files.mkdir(this.#build.orgId, sandbox.id, path, asRoot)
  }

  async #write(path: string, { sha256, bytes }: FileOutline): Promise<void> {
    const { orgId, key } = this.#build
    const { sandbox, signal } = this.#running
    signal.throwIfAborted()
    const body = this.#context.files.open(key, sha256)
    await this.#context.sandboxes.files.write(orgId, sandbox.id, path, body, { bytesMax: bytes, ...asRoot })
  }

  /** Throws `build_failed` unless the program ends with 0. */
  async #run({ argv, envs, ...shell }: StepCommand, type: string, number: number): Promise<void> {
    const { limits } = this.#context
    const [cmd, ...args] = argv
    const command = { cmd, args, envs: { ...this.#envs, ...envs }, ...shell, timeoutSeconds: limits.stepMs / 1000 }
    const id = await this.#start({ ...command, internal: true, keep: 'lossless' })
    const end = await this.#follow(id, 'internal', number, this.#running.signal)
    if (end.exitCode !== 0) throw failed(number, type, end)
  }

  async #start(command: StartExec): Promise<string> {
    const { orgId } = this.#build
    const { sandbox, signal } = this.#running
    signal.throwIfAborted()
    const { id } = await this.#context.sandboxes.exec.start(orgId, sandbox.id, command)
    return id
  }

  /** Emits the output of a program until its end. */
  async #follow(id: string, kind: ProcessKind, number: number, signal: AbortSignal): Promise<ProgramEnd> {
    const { orgId } = this.#build
    const { sandbox, emit } = this.#running
    const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() }
    let stderr = ''
    await using output = await this.#context.sandboxes.exec.attach(orgId, sandbox.id, id, { kind, signal })
    for await (const event of output) {
      signal.throwIfAborted()
      if (event.type === 'exit') return { ...event, stderr }
      if (event.type !== 'output') continue
      const data = decoders[event.stream].decode(event.data, { stream: true })
      if (data !== '') await emit({ event: 'build_output', step: number, stream: event.stream, data })
      if (event.stream === 'stderr') stderr = `${stderr}${data}`.slice(-outputTailBytes)
      await output.acknowledge(event.offset + event.data.length)
    }
    throw new ServiceError('unavailable', 'the sandbox of the build has ended')
  }

  /** Runs the start command, which goes on, and waits until it is ready. */
  async #startProcesses(startCommand: string, number: number): Promise<void> {
    const { limits, sandboxes } = this.#context
    const { orgId, outline } = this.#build
    const { sandbox, signal } = this.#running
    const listening = new Set(await sandboxes.exec.ports(orgId, sandbox.id))
    await this.#log(number, 'start', startCommand)
    const cwd = outline.defaults?.cwd ?? sandbox.commandDefaults?.cwd
    const inFolder = { envs: this.#envs, ...defined({ cwd }) }
    const id = await this.#start({ cmd: 'sh', args: ['-c', startCommand], ...inFolder, ofImage: true })
    // Close it before memory is saved, which an open connection would delay.
    const attached = new AbortController()
    let ended: ProgramEnd | undefined
    const following = this.#follow(id, 'image', number, AbortSignal.any([signal, attached.signal])).then(
      (end) => (ended = end),
      () => undefined,
    )
    const isReady = async (): Promise<boolean> => {
      if (outline.readyCommand === undefined) {
        return (await sandboxes.exec.ports(orgId, sandbox.id)).some((port) => !listening.has(port))
      }
      const ready = { cmd: 'sh', args: ['-c', outline.readyCommand], ...inFolder, ...asRoot }
      const { exitCode } = await sandboxes.exec.run(
        orgId,
        sandbox.id,
        { ...ready, timeoutSeconds: readyTimeoutSeconds },
        { signal },
      )
      return exitCode === 0
    }
    try {
      for (const until = Date.now() + limits.stepMs; !(await isReady());) {
        if (ended !== undefined) throw failed(number, 'start', ended)
        if (Date.now() > until) {
          const what = outline.readyCommand === undefined ? 'listens on no new port' : 'is not ready'
          const message = `the start command ${what} after ${limits.stepMs / 1000} seconds`
          throw new ServiceError('build_failed', message, { details: { step: number, type: 'start' } })
        }
        await sleep(readyPollMs, undefined, { signal })
      }
    } finally {
      attached.abort()
      await following
    }
    await this.#log(number, 'start', 'ready')
  }

  #position(number: number): string {
    return `[${number}/${this.#build.outline.steps.length}]`
  }

  async #log(step: number, type: string, message: string): Promise<void> {
    await this.#running.emit(logOf(step, type, message))
  }
}

export function logOf(step: number, type: string, message: string): BuildEvent {
  return { event: 'build_log', step, type, message }
}

interface ProgramEnd {
  exitCode: number
  timedOut?: boolean
  /** The end of the standard error output. */
  stderr: string
}

function failed(step: number, type: string, { exitCode, timedOut, stderr }: ProgramEnd): ServiceError {
  const why = timedOut ? 'took too long' : `exited with ${exitCode}`
  const end = stderr.trim().slice(-stderrInMessage)
  return new ServiceError('build_failed', `step ${step} (${type}) ${why}${end === '' ? '' : `: ${end}`}`, {
    details: { step, type, exitCode, stderr },
  })
}

export function checkpointName(id: string): string {
  return `image ${id.slice('cp-'.length)}`
}
