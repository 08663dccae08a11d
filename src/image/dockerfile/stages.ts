import type { Instruction } from './instruction.ts'
import type { StageState } from './operations.ts'

/** What a stage stands on, or copies from: a stage by its number in the file, an image by its name or reference, or nothing. */
export type StageSource = { stage: number } | { image: string } | 'scratch'

/** What a build carries out. */
export interface BuildPlan {
  /** Each after all that it needs; the last one is the target. */
  stages: readonly PlannedStage[]
  /** Of all stages of the file, in lower case. */
  stageNames: readonly string[]
  /** For the log of the build, such as an argument that no `ARG` declares. */
  warnings: readonly string[]
}

export interface PlannedStage {
  /** Its number in the file, from 0. */
  index: number
  /** In lower case. */
  name?: string
  /** Of its `FROM`. */
  line: number
  from: StageSource
  /** What each `from` of its operations and their mounts means. */
  sources: ReadonlyMap<string, StageSource>
  /** The lines of the instructions that become an operation, in order. */
  stepLines: readonly number[]
  /** Of the first instruction that reads files of the build, whatever its variables are. */
  contextLine?: number
  /** The rest is for its evaluation. */
  instructions: readonly Instruction[]
  escape: string
  arguments: StageArguments
}

export interface StageArguments {
  /** To the build. */
  given: Readonly<Record<string, string>>
  /** Of those before the first `FROM`, and the platform. */
  global: Readonly<Record<string, string>>
  /** Those of the given ones that every RUN gets. */
  proxies: Readonly<Record<string, string>>
}

export interface PlanOptions {
  /** A stage by name or number; default: the last one. */
  target?: string
  buildArgs?: Readonly<Record<string, string>>
}

/** What an image gives a stage that begins with it. */
export type BaseState = Partial<Pick<StageState, 'envs' | 'cwd' | 'user' | 'config'>>
