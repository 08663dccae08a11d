import assert from 'node:assert/strict'
import { isServiceError } from '../../../errors.ts'
import {
  type BaseState,
  initialState,
  type Operation,
  parseDockerfile,
  type PlanOptions,
  StageEvaluation,
  stagesNeeded,
  type StageState,
} from '../index.ts'

export interface Evaluated {
  /** Of all stages of the plan, in order. */
  operations: Operation[]
  /** Of the target. */
  state: StageState
  warnings: readonly string[]
  /** The lines of the stages of the plan. */
  lines: number[]
}

/** All that a text comes to, with `base` as every image. */
export function evaluated(text: string, options: PlanOptions & { base?: BaseState } = {}): Evaluated {
  const plan = stagesNeeded(parseDockerfile(text), options)
  const states = new Map<number, StageState>()
  const operations: Operation[] = []
  let state = initialState()
  for (const stage of plan.stages) {
    const { from } = stage
    const isStage = typeof from === 'object' && 'stage' in from
    const initial = isStage ? states.get(from.stage)! : initialState(from === 'scratch' ? {} : options.base)
    const evaluation = new StageEvaluation(stage, initial)
    operations.push(...evaluation.operations())
    state = evaluation.state
    states.set(stage.index, state)
  }
  return { operations, state, warnings: plan.warnings, lines: plan.stages.map(({ line }) => line) }
}

/** The arguments of each RUN. */
export function argvsOf(text: string, options?: PlanOptions): (readonly string[])[] {
  return evaluated(text, options).operations.flatMap((operation) => (operation.type === 'run' ? [operation.argv] : []))
}

/** Asserts that a text is refused with a line and a reason. */
export function assertRefused(text: string, line: number, why: RegExp, options?: PlanOptions): void {
  assert.throws(
    () => evaluated(text, options),
    (error: Error) => {
      assert.ok(isServiceError(error, 'invalid_request'), `${error.stack}`)
      assert.deepEqual(error.details, { field: 'dockerfile', line }, error.message)
      assert.match(error.message, why)
      assert.ok(error.message.startsWith(`dockerfile line ${line}: `))
      return true
    },
    text.slice(0, 200),
  )
}
