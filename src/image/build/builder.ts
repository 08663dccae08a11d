import { isServiceError, ServiceError } from '../../errors.ts'
import { Semaphore } from '../../lib/async/semaphore.ts'
import { defined } from '../../lib/defined.ts'
import type { ManifestOutline } from '../manifest.ts'
import type { ImageServiceDeps } from '../service.ts'
import type { Layers } from './layers.ts'
import type { Emit } from './logs.ts'
import { type BuildScope, BuildSandbox, logOf } from './sandbox.ts'
import type { BuildStep, Origin, Stage } from './stage.ts'
import { runStartCommand } from './start-command.ts'

export interface BuilderContext extends Pick<ImageServiceDeps, 'sandboxes' | 'limits' | 'log'> {
  layers: Layers
}

export interface Build {
  orgId: string
  /** The last one makes the image. */
  stages: readonly Stage[]
  outline: Pick<ManifestOutline, 'builderMemoryMB' | 'memory' | 'noCache' | 'startCommand' | 'readyCommand'>
  /** Of the image. */
  defaults?: ManifestOutline['defaults']
  /** What the end of the image needs beside its steps. No layer has it. */
  complete?: (sandbox: BuildSandbox) => Promise<void>
  /** Least memory of the image. */
  memoryMb: number
}

/** Sandboxes of one build at a time that run steps; one more may hold files that a step copies. */
const stagesAtOnce = 2
/** What a build with fewer sandboxes at a time may not meet. */
const shortages = new Set(['rate_limited', 'quota_exceeded', 'no_capacity'])

/**
 * Builds an image in sandboxes of its organisation and returns its checkpoint. The state after each step becomes a layer, from which a
 * later build goes on whose first steps are the same. A stage runs beside others as soon as the one that it stands on has ended, and only if
 * a step that runs needs it. Throws `build_failed` with `step`, `type`, `line`, `exitCode` and `stderr` when a step fails. Nothing but
 * layers and the checkpoint is left, also after an abort.
 */
export async function buildImage(
  context: BuilderContext,
  build: Build,
  emit: Emit,
  signal: AbortSignal,
): Promise<string> {
  const { limits } = context
  const tooLong = new ServiceError('build_failed', `the build takes longer than ${limits.buildMs / 1000} seconds`)
  const deadline = new AbortController()
  const timer = setTimeout(() => deadline.abort(tooLong), limits.buildMs).unref()
  const ended = AbortSignal.any([signal, deadline.signal])
  const { orgId, memoryMb, outline, stages } = build
  const attempt = async (atOnce: number): Promise<string> => {
    const failure = new AbortController()
    const scope: BuildScope = {
      ...{ context, orgId, memoryMb, emit, signal: AbortSignal.any([ended, failure.signal]) },
      ...defined({ builderMemoryMb: outline.builderMemoryMB }),
    }
    const starts = await startsOf(context, build)
    return await new StageRuns(context, build, scope, { starts, atOnce }).run((error) => failure.abort(error))
  }
  try {
    return await attempt(stagesAtOnce).catch(async (error: unknown) => {
      const isShort = isServiceError(error) && shortages.has(error.code)
      if (!isShort || stages.length === 1 || ended.aborted) throw error
      await emit(logOf(0, 'build', `${error.message}: going on with one stage at a time`))
      return await attempt(1)
    })
  } catch (error) {
    throw ended.aborted ? ended.reason : error
  } finally {
    clearTimeout(timer)
  }
}

/** Where a stage begins: after its first steps, of which the last one's layer is there, or at its origin. */
interface Start {
  done: number
  layer?: Origin
}

/** The stages that have to run, or whose end is a layer, by their place. */
async function startsOf(context: BuilderContext, { orgId, stages, outline }: Build): Promise<Map<number, Start>> {
  const starts = new Map<number, Start>()
  const visit = async (index: number): Promise<void> => {
    if (starts.has(index)) return
    const stage = stageAt(stages, index)
    const start = outline.noCache ? { done: 0 } : await newestLayer(context, orgId, stage.steps)
    starts.set(index, start)
    if (start.done === 0 && 'stage' in stage.from) await visit(stage.from.stage)
    for (const read of stage.steps.slice(start.done).flatMap(({ reads }) => reads)) await visit(read)
  }
  await visit(stages.length - 1)
  return starts
}

async function newestLayer({ layers }: BuilderContext, orgId: string, steps: readonly BuildStep[]): Promise<Start> {
  const found = await layers.newest(
    orgId,
    steps.map(({ hash }) => hash),
  )
  if (found === undefined) return { done: 0 }
  return { done: found.index + 1, layer: { checkpointId: found.checkpointId } }
}

class StageRuns {
  readonly #context: BuilderContext
  readonly #build: Build
  readonly #scope: BuildScope
  readonly #starts: ReadonlyMap<number, Start>
  readonly #ends = new Map<number, PromiseWithResolvers<Origin>>()
  readonly #permits: Semaphore
  /** Hashes of layers. */
  readonly #saved = new Set<string>()

  constructor(
    context: BuilderContext,
    build: Build,
    scope: BuildScope,
    { starts, atOnce }: { starts: ReadonlyMap<number, Start>; atOnce: number },
  ) {
    this.#context = context
    this.#build = build
    this.#scope = scope
    this.#starts = starts
    this.#permits = new Semaphore({ permits: atOnce })
  }

  /** Runs all stages and returns the checkpoint of the image. The first failure ends the others, with `stop`; all have ended when it throws. */
  async run(stop: (error: unknown) => void): Promise<string> {
    const { stages } = this.#build
    const last = stages.length - 1
    // In this order they get permits, so that one that waits for another never keeps it from running: a stage needs earlier ones alone.
    const indices = [...this.#starts.keys()].toSorted((one, other) => one - other)
    for (const index of indices) {
      const end = Promise.withResolvers<Origin>()
      // Others may not wait for it.
      end.promise.catch(() => undefined)
      this.#ends.set(index, end)
    }
    // Those that it stops fail too, later.
    let failure: { error: unknown } | undefined
    const runs = indices.map(async (index) => {
      const end = this.#ends.get(index)
      try {
        end?.resolve(await this.#runStage(index, this.#starts.get(index)!, index === last))
      } catch (error) {
        failure ??= { error }
        stop(error)
        end?.reject(error)
      }
    })
    await Promise.all(runs)
    if (failure !== undefined) throw failure.error
    const image = await this.#endOf(last)
    return 'checkpointId' in image ? image.checkpointId : ''
  }

  readonly #endOf = (index: number): Promise<Origin> => {
    const end = this.#ends.get(index)
    if (end === undefined) throw new Error(`stage ${index} does not run`)
    return end.promise
  }

  /** Its end is its last layer, or for the image the checkpoint. */
  async #runStage(index: number, { done, layer }: Start, isImage: boolean): Promise<Origin> {
    const stage = stageAt(this.#build.stages, index)
    const { steps } = stage
    const tellReused = async () => {
      for (const step of steps.slice(0, done)) await this.#tell(step, `${step.summary}: reused`)
    }
    if (!isImage && done === steps.length) {
      await tellReused()
      return await this.#originOf(stage, layer)
    }
    const { signal } = this.#scope
    return await this.#permits.use(
      async () => {
        const origin = await this.#originOf(stage, layer)
        await using sandbox = await BuildSandbox.start(this.#scope, origin)
        if (layer === undefined && stage.cwd !== undefined) await sandbox.makeFolder(stage.cwd)
        const reused = done === 0 ? '' : `, the first ${done} reused`
        const count = `${steps.length} ${steps.length === 1 ? 'step' : 'steps'}`
        const what = stage.name === undefined ? '' : `${stage.name}: `
        await this.#scope.emit(logOf(0, 'build', `${what}building ${count}${reused} in ${sandbox.id}`))
        await tellReused()
        let end = origin
        for (const step of steps.slice(done)) end = await this.#runStep(step, sandbox)
        return isImage ? await this.#finish(sandbox) : end
      },
      { signal },
    )
  }

  async #originOf({ from }: Stage, layer: Origin | undefined): Promise<Origin> {
    if (layer !== undefined) return layer
    return 'stage' in from ? await this.#endOf(from.stage) : from
  }

  async #runStep(step: BuildStep, sandbox: BuildSandbox): Promise<Origin> {
    await this.#tell(step, step.summary)
    const startedMs = performance.now()
    await step.run(sandbox, this.#endOf)
    const made = await sandbox.checkpoint('disk_only')
    const { outline, orgId } = this.#build
    // Another stage may begin with the same steps.
    const replaces = outline.noCache === true && !this.#saved.has(step.hash)
    this.#saved.add(step.hash)
    const checkpointId = await this.#context.layers.put(orgId, step.hash, made, replaces)
    await this.#tell(step, `done in ${((performance.now() - startedMs) / 1000).toFixed(1)} s`)
    return { checkpointId }
  }

  /** Starts what the image is to run, and saves it. */
  async #finish(sandbox: BuildSandbox): Promise<Origin> {
    const { outline, orgId, memoryMb, stages, complete, defaults } = this.#build
    const { memory, startCommand, readyCommand } = outline
    const number = stages.reduce((sum, { steps }) => sum + steps.length, 1)
    await complete?.(sandbox)
    if (startCommand !== undefined)
      await runStartCommand(sandbox, { startCommand, readyCommand, ...defined({ defaults }) }, number)
    await this.#scope.emit(logOf(number, 'checkpoint', memory ? 'saving files and memory' : 'saving files'))
    // A program that needs more memory fails here, not in each sandbox.
    if (memory) await this.#context.sandboxes.scaling.scale(orgId, sandbox.id, memoryMb)
    return { checkpointId: await sandbox.checkpoint(memory ? 'full' : 'disk_only', defaults) }
  }

  async #tell({ number, type, position }: BuildStep, message: string): Promise<void> {
    await this.#scope.emit(logOf(number, type, `${position} ${message}`))
  }
}

function stageAt(stages: readonly Stage[], index: number): Stage {
  const stage = stages[index]
  if (stage === undefined) throw new Error(`no stage ${index}`)
  return stage
}
