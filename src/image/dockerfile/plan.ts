import { ServiceError } from '../../errors.ts'
import { defined } from '../../lib/defined.ts'
import { listed } from '../../lib/listed.ts'
import { ExpansionBudget } from './budget.ts'
import { expandWord, type Expansion } from './expand.ts'
import { quoted, refused, suggestion } from './fault.ts'
import type { Dockerfile, Instruction, Stage } from './instruction.ts'
import { checkPlatform, machinePlatform, platformArgs } from './platform.ts'
import type { BuildPlan, PlannedStage, PlanOptions, StageSource } from './stages.ts'

/** As a reference of a registry. */
const imageCharsMax = 512
/** Arguments that a RUN gets without an `ARG`. */
const proxyNames = ['HTTP', 'HTTPS', 'FTP', 'NO', 'ALL'].flatMap((name) => [
  `${name}_PROXY`,
  `${name.toLowerCase()}_proxy`,
])
const argsMax = 1000
const argCharsMax = 1024 * 1024
/** As many as an error or a warning names. */
const listedMax = 10
/** Names that one without an `ARG` is compared with. */
const comparedMax = 200

/**
 * The stages that a target needs, each with what it stands on and copies from. Throws `invalid_request`: with the line of a `FROM` without a
 * meaning, and for a target or arguments that cannot be.
 */
export function stagesNeeded(dockerfile: Dockerfile, { target, buildArgs = {} }: PlanOptions = {}): BuildPlan {
  checkArgs(buildArgs)
  const last = targetOf(dockerfile, target)
  const scope = new GlobalScope(dockerfile, buildArgs, last)
  const needed = new Set([last.index])
  const stages: PlannedStage[] = []
  for (const stage of dockerfile.stages.slice(0, last.index + 1).reverse()) {
    if (!needed.has(stage.index)) continue
    const planned = plannedOf(stage, dockerfile, scope)
    for (const source of [planned.from, ...planned.sources.values()])
      if (typeof source === 'object' && 'stage' in source) needed.add(source.stage)
    stages.unshift(planned)
  }
  const stageNames = dockerfile.stages.flatMap(({ name }) => name ?? [])
  return { stages, stageNames, warnings: [...dockerfile.warnings, ...unusedWarning(dockerfile, buildArgs)] }
}

function plannedOf(stage: Stage, dockerfile: Dockerfile, scope: GlobalScope): PlannedStage {
  const { index, line, name, instructions } = stage
  const image = scope.expand(stage.image, line)
  if (image === '') throw refused(line, `FROM ${quoted(stage.image)} stands for nothing`)
  checkImage(image, line)
  if (stage.platform !== undefined) checkPlatform(scope.expand(stage.platform, line), line)
  const base = dockerfile.stages.slice(0, index).find((other) => other.name === image.toLowerCase())
  const sources = new Map<string, StageSource>()
  const contextLine = instructions.find(readsContext)?.line
  for (const instruction of instructions)
    for (const from of fromsOf(instruction))
      if (!sources.has(from)) sources.set(from, sourceOf(from, stage, dockerfile, instruction.line))
  return {
    index,
    line,
    ...defined({ name }),
    from: image === 'scratch' ? image : base === undefined ? { image } : { stage: base.index },
    sources,
    stepLines: instructions.filter(({ type }) => stepTypes.has(type)).map((instruction) => instruction.line),
    ...(contextLine === undefined ? {} : { contextLine }),
    instructions,
    escape: dockerfile.escape,
    arguments: scope,
  }
}

const stepTypes: ReadonlySet<string> = new Set(['run', 'copy', 'add', 'workdir'])

function readsContext(instruction: Instruction): boolean {
  if (instruction.type === 'copy' || instruction.type === 'add')
    return instruction.from === undefined && instruction.sources.some((source) => 'word' in source)
  if (instruction.type !== 'run') return false
  return instruction.mounts.some((options) => {
    const valueOf = (wanted: string) => options.find(({ name }) => name === wanted)?.value
    return (valueOf('type') ?? 'bind').toLowerCase() === 'bind' && !valueOf('from')
  })
}

/** What an instruction copies from or mounts, beside the context. */
function fromsOf(instruction: Instruction): string[] {
  if (instruction.type === 'copy' || instruction.type === 'add')
    return instruction.from === undefined ? [] : [instruction.from]
  if (instruction.type !== 'run') return []
  const options = instruction.mounts.flat()
  return options.flatMap(({ name, value = '' }) => (name === 'from' && value !== '' ? [value] : []))
}

/** The first line that names an image. */
export function lineNaming({ stages }: BuildPlan, image: string): number {
  for (const { line, from, instructions } of stages) {
    if (typeof from === 'object' && 'image' in from && from.image === image) return line
    const found = instructions.find((instruction) => fromsOf(instruction).includes(image))
    if (found !== undefined) return found.line
  }
  return 1
}

/** An earlier stage by name or number, or an image. */
function sourceOf(from: string, stage: Stage, { stages }: Dockerfile, line: number): StageSource {
  if (from === 'scratch') return from
  const isNumber = /^\d+$/.test(from)
  const lower = from.toLowerCase()
  const found = isNumber ? stages[Number(from)] : stages.find(({ name }) => name === lower)
  if (found === undefined && isNumber) throw refused(line, `there is no stage ${quoted(from)}`)
  if (found === undefined) {
    checkImage(from, line)
    return { image: from }
  }
  if (found.index === stage.index) throw refused(line, `a stage cannot copy from itself: ${quoted(from)}`)
  if (found.index > stage.index)
    throw refused(line, `the stage ${quoted(from)} comes later, in line ${found.line}: copy from an earlier one`)
  return { stage: found.index }
}

function checkImage(name: string, line: number): void {
  if (/\s/.test(name) || name.length > imageCharsMax) throw refused(line, `${quoted(name)} is no name of an image`)
}

function targetOf({ stages }: Dockerfile, target: string | undefined): Stage {
  if (target === undefined || target === '') return stages.at(-1) ?? stages[0]
  const named = stages.find(({ name }) => name === target.toLowerCase())
  const found = named ?? (/^\d+$/.test(target) ? stages[Number(target)] : undefined)
  if (found !== undefined) return found
  const names = stages.flatMap(({ name }) => name ?? [])
  const known = names.length === 0 ? '' : `: it has ${listed(names, listedMax)}`
  throw new ServiceError(
    'invalid_request',
    `the Dockerfile has no stage ${quoted(target)}${suggestion(target, names) || known}`,
    {
      details: { field: 'target' },
    },
  )
}

/** What `FROM` is expanded with, and what a stage takes over by an `ARG` of the same name. */
class GlobalScope {
  readonly given: Readonly<Record<string, string>>
  readonly proxies: Readonly<Record<string, string>>
  global: Readonly<Record<string, string>>
  readonly #escape: string
  readonly #budget = new ExpansionBudget()

  constructor({ globalArgs, escape }: Dockerfile, buildArgs: Readonly<Record<string, string>>, target: Stage) {
    this.given = buildArgs
    this.#escape = escape
    const isGiven = (name: string): boolean => Object.hasOwn(buildArgs, name)
    const predefined = { ...platformArgs(machinePlatform), TARGETSTAGE: target.name ?? 'default' }
    const entries = Object.entries(predefined).map(([name, value]) => [name, isGiven(name) ? buildArgs[name]! : value])
    this.global = Object.fromEntries(entries)
    this.proxies = Object.fromEntries(proxyNames.filter(isGiven).map((name) => [name, buildArgs[name]!]))
    for (const { line, args } of globalArgs) {
      if (Object.keys(this.global).length + args.length > argsMax) throw refused(line, `more than ${argsMax} arguments`)
      const added = args.map(({ name, value }): [string, string][] => {
        if (isGiven(name)) return [[name, buildArgs[name]!]]
        return value === undefined ? [] : [[name, this.expand(value, line)]]
      })
      this.global = { ...this.global, ...Object.fromEntries(added.flat()) }
    }
  }

  expand(word: string, line: number): string {
    const valueOf = (name: string) => (Object.hasOwn(this.global, name) ? this.global[name] : undefined)
    const expansion: Expansion = { line, escape: this.#escape, valueOf, budget: this.#budget }
    return expandWord(word, expansion)
  }
}

function checkArgs(buildArgs: Readonly<Record<string, string>>): void {
  const entries = Object.entries(buildArgs)
  const chars = entries.reduce((sum, [name, value]) => sum + name.length + value.length, 0)
  const why =
    entries.length > argsMax
      ? `there are more than ${argsMax}`
      : chars > argCharsMax
        ? `they have more than ${argCharsMax} characters`
        : entries.some((entry) => entry.some((text) => text.includes('\0')))
          ? 'one has a zero byte'
          : undefined
  if (why !== undefined)
    throw new ServiceError('invalid_request', `arguments of the build: ${why}`, { details: { field: 'buildArgs' } })
}

function unusedWarning(dockerfile: Dockerfile, buildArgs: Readonly<Record<string, string>>): string[] {
  const declared = new Set([
    ...proxyNames,
    ...Object.keys(platformArgs(machinePlatform)),
    'TARGETSTAGE',
    'SOURCE_DATE_EPOCH',
  ])
  for (const { args } of dockerfile.globalArgs) for (const { name } of args) declared.add(name)
  for (const { instructions } of dockerfile.stages)
    for (const instruction of instructions)
      if (instruction.type === 'arg') for (const { name } of instruction.args) declared.add(name)
  const unused = Object.keys(buildArgs).filter((name) => !declared.has(name) && !name.startsWith('BUILDKIT_'))
  const near = [...declared].slice(-comparedMax)
  return unused
    .slice(0, listedMax)
    .map((name) => `the argument ${quoted(name)} is declared by no ARG${suggestion(name, near)}`)
}
