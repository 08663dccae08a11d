import { createHash } from 'node:crypto'
import { Readable } from 'node:stream'
import { defined } from '../../lib/defined.ts'
import { sha256 } from '../../lib/secret.ts'
import { tarEnd } from '../../protocol/tar-writer.ts'
import type { ImageConfig } from '../config.ts'
import type { Context } from '../contexts/context.ts'
import { type CopyFrom, copyInto, fromContext, inStep, unpack, withFilesOf } from '../copy/copy.ts'
import { findSource, selectSources } from '../copy/sources.ts'
import {
  type BaseState,
  type BuildPlan as StagePlan,
  type CopyOperation,
  initialState,
  type Operation,
  type PlannedStage,
  type RunOperation,
  StageEvaluation,
  type StageSource,
  type StageState,
  type StepMount,
} from '../dockerfile/index.ts'
import { noContext } from '../dockerfile-manifest.ts'
import type { ManifestOutline } from '../manifest.ts'
import { oneLine, writeVariables } from '../steps.ts'
import { RunMounts } from './run-mounts.ts'
import type { BuildSandbox } from './sandbox.ts'
import type { BuildStep, Origin, Stage, StageEnds, StepPlace } from './stage.ts'

/** What a name of an image in a Dockerfile stands for. */
export interface Base {
  origin: Origin
  /** A text that changes with its content. */
  description: string
  state: BaseState
  /** Of an image of a registry. */
  reference?: string
}

export interface StagesInput {
  plan: StagePlan
  bases: ReadonlyMap<string, Base>
  context: Context | undefined
  buildArgs: Readonly<Record<string, string>>
  /** Throws `build_failed` when a required secret is not there. */
  secret: (id: string, isRequired: boolean) => Buffer | undefined
}

export interface DockerfileBuild {
  stages: Stage[]
  defaults: NonNullable<ManifestOutline['defaults']>
  config: ImageConfig
  complete: (sandbox: BuildSandbox) => Promise<void>
}

/** Counts changes of what operations leave in a layer, which then has another hash. */
const revision = 1
const scratch: Base = { origin: { image: 'scratch' }, description: 'scratch', state: {} }
/** Where a heredoc of `RUN` that is a program is mounted. */
const scriptPath = '/.heredoc/script'

/**
 * The stages of a Dockerfile, ready to run: variables are expanded, and each operation has the hash of the state after it. That depends on
 * the operation and on what it copies: from the context on the content, mode and type of each file, from a stage on all of its operations.
 */
export async function stagesOf(input: StagesInput): Promise<DockerfileBuild> {
  const planned: Planned[] = []
  for (const stage of input.plan.stages) planned.push(await new StagePlanner(input, planned).plan(stage))
  const { state, envsBefore } = planned.at(-1)!
  const { envs, cwd, user, config } = state
  const added = Object.entries(envs).filter(([name, value]) => envsBefore[name] !== value)
  return {
    stages: planned.map(({ stage }) => stage),
    defaults: { envs, ...defined({ cwd, user }) },
    config: { ...config, envs, ...defined({ cwd, user }) },
    complete: (sandbox) => writeVariables(sandbox, Object.fromEntries(added)),
  }
}

interface Planned {
  index: number
  stage: Stage
  hash: string
  state: StageState
  /** Of the image that it stands on, perhaps through other stages. */
  envsBefore: Readonly<Record<string, string>>
}

class StagePlanner {
  readonly #input: StagesInput
  readonly #earlier: readonly Planned[]
  readonly #context: CopyFrom | undefined

  constructor(input: StagesInput, earlier: readonly Planned[]) {
    this.#input = input
    this.#earlier = earlier
    this.#context = input.context && fromContext(input.context)
  }

  async plan(planned: PlannedStage): Promise<Planned> {
    const { index, name = `stage-${index}`, from } = planned
    const below = this.#startOf(from)
    const evaluation = new StageEvaluation(planned, below.state)
    const operations = [...evaluation.operations()]
    const isOnly = this.#input.plan.stages.length === 1
    let { hash } = below
    let number = this.#earlier.reduce((sum, { stage }) => sum + stage.steps.length, 0)
    const steps: BuildStep[] = []
    for (const [at, operation] of operations.entries()) {
      const { type, line, summary } = operation
      number += 1
      hash = await this.#hashAfter(hash, operation, planned)
      const place = { number, type, line }
      steps.push({
        ...place,
        position: `[${isOnly ? '' : `${name} `}${at + 1}/${operations.length}]`,
        summary: oneLine(summary),
        hash,
        reads: this.#readsOf(operation, planned),
        run: (sandbox, ends) => this.#run(sandbox, operation, { place, planned, ends }),
      })
    }
    const stage: Stage = {
      from: below.from,
      steps,
      ...defined({ name: isOnly ? undefined : name, cwd: below.cwd }),
    }
    return { index, stage, hash, state: evaluation.state, envsBefore: below.envsBefore }
  }

  #startOf(from: StageSource): Pick<Planned, 'hash' | 'state' | 'envsBefore'> & Pick<Stage, 'from' | 'cwd'> {
    if (typeof from === 'object' && 'stage' in from) {
      const place = this.#placeOf(from.stage)
      const { hash, state, envsBefore } = this.#earlier[place]!
      return { from: { stage: place }, hash, state, envsBefore }
    }
    const { origin, description, state } = from === 'scratch' ? scratch : this.#baseOf(from.image)
    const initial = initialState(state)
    return {
      from: origin,
      hash: sha256(JSON.stringify({ dockerfile: revision, base: description })),
      state: initial,
      envsBefore: state.envs ?? {},
      ...defined({ cwd: state.cwd === '/' ? undefined : state.cwd }),
    }
  }

  #baseOf(image: string): Base {
    const base = this.#input.bases.get(image)
    if (base === undefined) throw new Error(`image ${image} was not looked up`)
    return base
  }

  #placeOf(index: number): number {
    const place = this.#earlier.findIndex((planned) => planned.index === index)
    if (place < 0) throw new Error(`stage ${index} is not planned`)
    return place
  }

  #sourceOf(from: string, { sources }: PlannedStage): StageSource {
    const source = sources.get(from)
    if (source === undefined) throw new Error(`nothing is known of ${from}`)
    return source
  }

  /** The places of the stages that an operation copies from or mounts. */
  #readsOf(operation: Operation, planned: PlannedStage): number[] {
    return namesIn(operation).flatMap((from) => {
      const source = this.#sourceOf(from, planned)
      return typeof source === 'object' && 'stage' in source ? [this.#placeOf(source.stage)] : []
    })
  }

  async #hashAfter(before: string, operation: Operation, planned: PlannedStage): Promise<string> {
    const { line: _line, summary: _summary, ...counted } = operation
    const { proxies: _proxies, ...inputs } = { proxies: undefined, ...counted }
    const hash = createHash('sha256').update(`${before} ${JSON.stringify(inputs)}`)
    for (const from of namesIn(operation)) hash.update(`\n${from} ${this.#describe(this.#sourceOf(from, planned))}`)
    if (operation.type === 'run') {
      for (const mount of operation.mounts)
        if (mount.type === 'bind' && mount.from === undefined)
          hash.update(`\n${await this.#digestOf(mount.source, operation.line)}`)
    } else if (operation.type !== 'workdir' && operation.from === undefined) {
      for await (const part of this.#digestsOf(operation)) hash.update(`\n${part}`)
    }
    return hash.digest('hex')
  }

  #describe(source: StageSource): string {
    if (source === 'scratch') return scratch.description
    return 'stage' in source ? this.#earlier[this.#placeOf(source.stage)]!.hash : this.#baseOf(source.image).description
  }

  async #digestOf(path: string, line: number): Promise<string> {
    const context = this.#contextFor(line)
    return await context.digestOf((await findSource(context, path, line)).path)
  }

  /** Of what an instruction copies from the context. */
  async *#digestsOf(operation: CopyOperation): AsyncGenerator<string> {
    if (operation.sources.every((source) => 'content' in source)) return
    const context = this.#contextFor(operation.line)
    const { entries, skip } = await selectSources(context, operation)
    for (const { path, name, type } of entries) {
      if (skip.size === 0 || type !== 'directory') yield `${name}\0${await context.digestOf(path)}`
      else yield* digestsBelow(context, path, name, skip)
    }
  }

  #contextFor(line: number): Context {
    const { context } = this.#input
    if (context === undefined) throw noContext(line)
    return context
  }

  async #run(
    sandbox: BuildSandbox,
    operation: Operation,
    at: { place: StepPlace; planned: PlannedStage; ends: StageEnds },
  ): Promise<void> {
    const { place, planned, ends } = at
    const originOf = async (from: string): Promise<Origin> => {
      const source = this.#sourceOf(from, planned)
      if (source === 'scratch') return scratch.origin
      return 'stage' in source ? await ends(this.#placeOf(source.stage)) : this.#baseOf(source.image).origin
    }
    await inStep(place, async () => {
      switch (operation.type) {
        case 'workdir':
          return await makeWorkdir(sandbox, operation)
        case 'run':
          return await this.#runCommand(sandbox, operation, place, originOf)
        case 'copy':
        case 'add': {
          const { from } = operation
          if (from === undefined) return await copyInto(sandbox, operation, this.#context)
          await withFilesOf(sandbox, await originOf(from), (files) => copyInto(sandbox, operation, files))
        }
      }
    })
  }

  async #runCommand(
    sandbox: BuildSandbox,
    { argv, script, envs, proxies, cwd, user, mounts: asked, line }: RunOperation,
    place: StepPlace,
    originOf: (from: string) => Promise<Origin>,
  ): Promise<void> {
    const { secret } = this.#input
    await using mounts = new RunMounts(sandbox, { context: this.#context, originOf, secret }, line)
    for (const mount of byTarget(asked)) await mounts.add(mount)
    if (script !== undefined) await mounts.addProgram(scriptPath, script)
    const words: [string, ...string[]] = script === undefined ? [...argv] : [...argv, scriptPath]
    const command = { argv: words, envs: { ...proxies, ...envs, ...mounts.envs }, cwd, ...defined({ user }) }
    let failure: unknown
    try {
      await sandbox.run(command, place)
    } catch (error) {
      failure = await mounts.explain(error)
    }
    // Before mounts are detached; a cache may have its next user at once.
    await sandbox.endProcesses().catch((error: unknown) => (failure ??= error))
    if (failure !== undefined) throw failure
  }
}

/** As BuildKit has them, so that none hides one within it. */
function byTarget(mounts: readonly StepMount[]): StepMount[] {
  return mounts.toSorted(({ target: one = '' }, { target: other = '' }) => (one < other ? -1 : one > other ? 1 : 0))
}

/** The owner is that of `USER`, as with BuildKit; what is there keeps its own. */
async function makeWorkdir(sandbox: BuildSandbox, { path, user }: { path: string; user?: string }): Promise<void> {
  if (user === undefined) return await sandbox.makeFolder(path)
  await unpack(sandbox, Readable.from([tarEnd]), { target: path, owner: user })
}

async function* digestsBelow(
  context: Context,
  path: string,
  name: string,
  skip: ReadonlySet<string>,
): AsyncGenerator<string> {
  for (const child of await context.list(path)) {
    if (skip.has(child.path)) continue
    const below = `${name}/${child.path.slice(child.path.lastIndexOf('/') + 1)}`
    if (child.type !== 'directory') yield `${below}\0${await context.digestOf(child.path)}`
    else {
      yield `${below}/\0${child.mode}`
      yield* digestsBelow(context, child.path, below, skip)
    }
  }
}

function namesIn(operation: Operation): string[] {
  if (operation.type === 'workdir') return []
  if (operation.type !== 'run') return operation.from === undefined ? [] : [operation.from]
  return operation.mounts.flatMap((mount) => ('from' in mount && mount.from !== undefined ? [mount.from] : []))
}
