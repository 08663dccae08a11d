import type { Readable } from 'node:stream'
import { ignoreNotFound, ServiceError } from '../../errors.ts'
import { defined } from '../../lib/defined.ts'
import { newId } from '../../lib/id.ts'
import {
  type CheckpointKind,
  type ProcessKind,
  type Sandbox,
  type SandboxService,
  type StartExec,
  startDefaults,
} from '../../sandbox/index.ts'
import type { BuildEvent } from '../image.ts'
import type { ManifestOutline } from '../manifest.ts'
import type { StepCommand } from '../steps.ts'
import type { BuilderContext } from './builder.ts'
import type { Emit } from './logs.ts'
import type { Origin, StepPlace } from './stage.ts'

/** Builds are root's, also on an image with a user of its own. */
export const asRoot = { user: 'root' } as const

const builderMemoryMbDefault = 4096
const builderCpuCount = 2
const outputTailBytes = 16 * 1024
const stderrInMessage = 500

/** What all sandboxes of one build have in common. */
export interface BuildScope {
  context: Pick<BuilderContext, 'sandboxes' | 'limits' | 'log'>
  orgId: string
  /** Of the sandboxes, in MiB. */
  builderMemoryMb?: number
  /** Of the image, in MiB. */
  memoryMb: number
  emit: Emit
  /** Ends the build. */
  signal: AbortSignal
}

/** A sandbox of a build, which goes at the end of its scope (`await using`). */
export class BuildSandbox {
  readonly scope: BuildScope
  readonly sandbox: Sandbox

  private constructor(scope: BuildScope, sandbox: Sandbox) {
    this.scope = scope
    this.sandbox = sandbox
  }

  static async start(
    scope: BuildScope,
    from: Origin,
    memoryMb = scope.builderMemoryMb ?? builderMemoryMbDefault,
  ): Promise<BuildSandbox> {
    const { orgId, signal, context } = scope
    const { sandboxes, limits } = context
    signal.throwIfAborted()
    const id = newId('sb-build-')
    const sizes = {
      id,
      memoryMb,
      cpuCount: builderCpuCount,
      diskMb: limits.builderDiskMb,
      timeoutSeconds: 0,
    }
    try {
      const { sandbox } =
        'image' in from
          ? await sandboxes.create(orgId, { ...sizes, image: from.image })
          : await sandboxes.checkpoints.start(orgId, from.checkpointId, sizes)
      signal.throwIfAborted()
      return new BuildSandbox(scope, sandbox)
    } catch (error) {
      await remove(scope, id)
      throw error
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await remove(this.scope, this.id)
  }

  get id(): string {
    return this.sandbox.id
  }

  get files(): SandboxService['files'] {
    return this.scope.context.sandboxes.files
  }

  async makeFolder(path: string): Promise<void> {
    this.scope.signal.throwIfAborted()
    await this.files.mkdir(this.scope.orgId, this.id, path, asRoot)
  }

  async write(path: string, body: Readable, bytesMax: number): Promise<void> {
    this.scope.signal.throwIfAborted()
    await this.files.write(this.scope.orgId, this.id, path, body, { bytesMax, ...asRoot })
  }

  /** Runs a program and emits its output. Throws `build_failed` unless it ends with 0. */
  async run({ argv, ...given }: StepCommand, place: StepPlace): Promise<void> {
    const [cmd, ...args] = argv
    const command = { cmd, args, ...given, timeoutSeconds: this.scope.context.limits.stepMs / 1000 }
    const id = await this.start({ ...command, internal: true, emptyInput: true, keep: 'lossless' })
    const end = await this.follow(id, 'internal', place.number, this.scope.signal)
    if (end.exitCode !== 0) throw failed(place, end)
  }

  /** Kills what a step has left running. One of a build that has ended goes with its sandbox. */
  async endProcesses(): Promise<void> {
    const { context, orgId, signal } = this.scope
    if (!signal.aborted) await context.sandboxes.mounts.endProcesses(orgId, this.id)
  }

  async start(command: StartExec): Promise<string> {
    const { context, orgId, signal } = this.scope
    signal.throwIfAborted()
    const { id } = await context.sandboxes.exec.start(orgId, this.id, command)
    return id
  }

  /** Emits the output of a program until its end. */
  async follow(id: string, kind: ProcessKind, step: number, signal: AbortSignal): Promise<ProgramEnd> {
    const { context, orgId, emit } = this.scope
    const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() }
    let stderr = ''
    await using output = await context.sandboxes.exec.attach(orgId, this.id, id, { kind, signal })
    for await (const event of output) {
      signal.throwIfAborted()
      if (event.type === 'exit') return { ...event, stderr }
      if (event.type !== 'output') continue
      const data = decoders[event.stream].decode(event.data, { stream: true })
      if (data !== '') await emit({ event: 'build_output', step, stream: event.stream, data })
      if (event.stream === 'stderr') stderr = `${stderr}${data}`.slice(-outputTailBytes)
      await output.acknowledge(event.offset + event.data.length)
    }
    throw new ServiceError('unavailable', 'the sandbox of the build has ended')
  }

  /** Returns the id. A layer has the defaults of the origin alone, as other images stand on it too. */
  async checkpoint(kind: CheckpointKind, defaults: ManifestOutline['defaults'] = { envs: {} }): Promise<string> {
    const { context, orgId, memoryMb, signal } = this.scope
    signal.throwIfAborted()
    const { checkpoints } = context.sandboxes
    const id = newId('cp-')
    const { envs, cwd, user } = defaults
    const { cpuCount, diskMb } = startDefaults
    const sandboxConfig = {
      ...{ memoryMb, cpuCount, diskMb },
      envs: { ...this.sandbox.envs, ...envs },
      commandDefaults: { ...this.sandbox.commandDefaults, ...defined({ cwd, user }) },
    }
    await checkpoints.create(orgId, this.id, { id, name: checkpointName(id), kind, owner: 'image', sandboxConfig })
    const { status, error } = await checkpoints.settled(orgId, id)
    if (status !== 'ready')
      throw new ServiceError('unavailable', `the image could not be saved: ${error ?? 'no reason known'}`)
    return id
  }
}

async function remove({ context, orgId }: BuildScope, sandboxId: string): Promise<void> {
  const removed = context.sandboxes.delete(orgId, sandboxId).catch(ignoreNotFound)
  await removed.catch((error: unknown) =>
    context.log.error({ err: error, sandboxId }, 'the sandbox of a build could not be removed'),
  )
}

export interface ProgramEnd {
  exitCode: number
  timedOut?: boolean
  /** The end of the standard error output. */
  stderr: string
}

export function failed(place: StepPlace, { exitCode, timedOut, stderr }: ProgramEnd): ServiceError {
  const why = timedOut ? 'took too long' : `exited with ${exitCode}`
  const end = lastLines(stderr.trim(), stderrInMessage)
  return new ServiceError('build_failed', `${nameOf(place)} ${why}${end === '' ? '' : `: ${end}`}`, {
    details: { ...detailsOf(place), exitCode, stderr },
  })
}

/** The last lines that fit into so many characters; of a last line that does not, its end. */
export function lastLines(text: string, charsMax: number): string {
  if (text.length <= charsMax) return text
  const end = text.slice(-charsMax)
  const isLineBegin = text[text.length - charsMax - 1] === '\n'
  const lineEnd = end.indexOf('\n')
  return isLineBegin ? end : lineEnd < 0 ? `…${end}` : end.slice(lineEnd + 1)
}

/** `step 3 (run, line 7)`. */
export function nameOf({ number, type, line }: StepPlace): string {
  return `step ${number} (${type}${line === undefined ? '' : `, line ${line}`})`
}

export function detailsOf({ number, type, line }: StepPlace): { step: number; type: string; line?: number } {
  return { step: number, type, ...defined({ line }) }
}

export function logOf(step: number, type: string, message: string): BuildEvent {
  return { event: 'build_log', step, type, message }
}

export function checkpointName(id: string): string {
  return `image ${id.slice('cp-'.length)}`
}
