import type { BuildSandbox } from './sandbox.ts'

/** An installed image by name, or a checkpoint. */
export type Origin = { image: string } | { checkpointId: string }

/** Where a step is, for logs and errors. */
export interface StepPlace {
  /** From 1, over all stages of the build. */
  number: number
  type: string
  /** Of the Dockerfile. */
  line?: number
}

/** A part of a build after which the files become a layer. */
export interface BuildStep extends StepPlace {
  /** `[2/5]`. */
  position: string
  /** One line about it, for logs. */
  summary: string
  /** Of the state after it. */
  hash: string
  /** The stages that `run` asks for. */
  reads: readonly number[]
  run(sandbox: BuildSandbox, ends: StageEnds): Promise<void>
}

/** The end of an earlier stage of the build, which is waited for. */
export type StageEnds = (stage: number) => Promise<Origin>

/** Steps on one another. Stages know earlier ones by their place in the build, whose last stage makes the image. */
export interface Stage {
  from: Origin | { stage: number }
  /** For logs; absent for the only one. */
  name?: string
  /** The default folder of commands, which an image of a registry may lack: made in a new sandbox. */
  cwd?: string
  steps: readonly BuildStep[]
}
