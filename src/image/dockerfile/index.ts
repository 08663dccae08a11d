/**
 * The language of Dockerfiles without any I/O: a text becomes instructions (`parseDockerfile`), instructions and arguments a plan (`stagesNeeded`),
 * and each planned stage operations with all variables expanded (`StageEvaluation`). docs/decisions/0042-own-dockerfile-parser.md says why it is our own.
 *
 * ```ts
 * const plan = stagesNeeded(parseDockerfile(text), { target, buildArgs })
 * for (const stage of plan.stages) {
 *   const evaluation = new StageEvaluation(stage, stateOf(stage.from) ?? initialState({ envs, cwd, user, config }))
 *   for (const operation of evaluation.operations()) …
 *   evaluation.state // what a stage on this one begins with, and what the image gives its sandboxes
 * }
 * ```
 */
export { parseDockerfile } from './dockerfile.ts'
export { StageEvaluation } from './evaluation.ts'
export { failed, refused, withoutLine } from './fault.ts'
export type { Dockerfile } from './instruction.ts'
export type * from './operations.ts'
export { lineNaming, stagesNeeded } from './plan.ts'
export type { BaseState, BuildPlan, PlannedStage, PlanOptions, StageSource } from './stages.ts'
export { initialState } from './state.ts'
