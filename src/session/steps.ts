import { isServiceError } from '../errors.ts'
import type { FairYield } from '../lib/async/fair-yield.ts'
import { backOff } from '../lib/async/retry.ts'
import type { Semaphore } from '../lib/async/semaphore.ts'
import { newId } from '../lib/id.ts'
import { sha256 } from '../lib/secret.ts'
import type { AgentAttachment } from './agent-attachment.ts'
import {
  endAgents,
  ensureSandbox,
  findSandbox,
  newGatewayToken,
  runningAgents,
  startAgent,
  type StartPermit,
  writeSkills,
} from './boot.ts'
import { retryBackOff, type SessionLimits, type SessionTimings } from './config.ts'
import { wakeFailedText } from './decision.ts'
import type { DraftPiece } from './draft.ts'
import { dropForkCheckpoint } from './fork.ts'
import type { SessionPoints } from './points.ts'
import type { Input, StepEffect, StepResult } from './reducer-types.ts'
import { carryOut } from './rewind-step.ts'
import type { SessionDeps } from './service.ts'
import type { Session } from './session.ts'
import type { CapacityWait, RetryQueues } from './shortage.ts'
import type { SessionState } from './state.ts'

export interface RunnerDeps extends Omit<SessionDeps, 'signingSecret'> {
  limits: SessionLimits
  timings: SessionTimings
  /** Shared by all sessions. */
  starts: Semaphore
  queues: RetryQueues
  points: SessionPoints
  /** Yields between pages of histories. */
  pages: FairYield
  /** Told of each turn of which a checkpoint was taken. */
  onTurnSaved: (session: Session, turnId: string) => void
  /** Told of each turn that has failed of a session that makes capsules of these. Does not throw. */
  onTurnFailed: (session: Session, turnId: string) => Promise<void>
  /** Archives the forks of a session that adopts this one. */
  archiveForks: (session: Session, adoptedId: string) => Promise<void>
}

/** What the parts of a runner share. */
export interface RunnerContext extends RunnerDeps {
  sessionId: string
  orgId: string
  permit: StartPermit
  capacity: CapacityWait
  /** Aborts when the runner stops. */
  signal: AbortSignal
  read: () => Promise<SessionState>
  apply: (input: Input) => Promise<SessionState>
  applyUnlessStopped: (input: Input) => Promise<void>
  /** Tells followers of an answer that is being written. */
  tellDraft: (piece: DraftPiece) => void
  asAgent: <Result>(work: () => Result) => Result
}

/** Carries out the steps of one session. The result of each is an input of the reducer; after the end of the runner it has no meaning. */
export class Steps {
  readonly #context: RunnerContext
  readonly #attachment: AgentAttachment

  constructor(context: RunnerContext, attachment: AgentAttachment) {
    this.#context = context
    this.#attachment = attachment
  }

  async run(effect: StepEffect, session: Session): Promise<StepResult> {
    const { capacity, timings, signal } = this.#context
    const { sandboxId } = session
    switch (effect.type) {
      case 'inspect_sandbox':
        return { type: 'inspected', sandboxId, sandbox: await findSandbox(this.#context.sandboxes, session) }
      case 'boot':
        return await this.#attempt('The sandbox could not be started', session, effect.queues, () =>
          this.#boot(session),
        )
      case 'delete_fork_checkpoint':
        return { type: 'fork_checkpoint_deleted', sandboxId, isDeleted: await this.deleteForkCheckpoint(session) }
      case 'accept_restore':
        return await this.#attempt(wakeFailedText, session, effect.queues, () => this.#acceptRestore(session))
      case 'rewind':
        return await carryOut(this.#context, session, effect.rewind)
      case 'start_agent':
        return await this.#startAgent(effect, session)
      case 'attach':
        return await this.#attachment.run(effect, session)
      case 'wait_for_capacity':
        await capacity.pause(effect)
        return { type: 'capacity_wait_over' }
      case 'back_off':
        await backOff(effect.failures, retryBackOff(timings), signal)
        return { type: 'step_done' }
    }
  }

  /** True when none is left. A checkpoint that cannot be removed now is tried again later. */
  async deleteForkCheckpoint(session: Session): Promise<boolean> {
    try {
      await dropForkCheckpoint(this.#context.sandboxes, session)
      return true
    } catch (error) {
      this.#context.log.warn({ err: error, sessionId: session.id }, 'the checkpoint of a fork was left behind')
      return false
    }
  }

  /** A step whose failure is the session's. One that `queues` waits behind the sessions that lack capacity already. */
  async #attempt(
    what: string,
    session: Session,
    queues: boolean,
    work: () => Promise<StepResult>,
    processId?: string,
  ): Promise<StepResult> {
    try {
      if (queues) this.#context.capacity.assertFree()
      return await work()
    } catch (error) {
      const { sandboxId } = session
      // The sandbox may have ended while a call was at work on it.
      const sandbox = isServiceError(error) ? undefined : await findSandbox(this.#context.sandboxes, session)
      const fault = sandbox?.status === 'error' ? sandbox.reason : undefined
      return { type: 'step_failed', sandboxId, what, error, fault, processId }
    }
  }

  async #boot(session: Session): Promise<StepResult> {
    const { sandboxes, signal } = this.#context
    await ensureSandbox(this.#context, session, signal)
    signal.throwIfAborted()
    if (session.checkpointId !== undefined) {
      await endAgents(sandboxes, session, await runningAgents(sandboxes, session))
    }
    return { type: 'booted', sandboxId: session.sandboxId }
  }

  /** Kills the agents that came back with the memory of the checkpoint. */
  async #acceptRestore(session: Session): Promise<StepResult> {
    const { sandboxes } = this.#context
    const { sandboxId } = session
    // This call waits for a restore that is under way. A restore that failed is not counted any more.
    const agents = await runningAgents(sandboxes, session)
    const restores = (await findSandbox(this.#context.sandboxes, session))?.restores
    if (restores === undefined || restores === session.sandboxRestores) {
      return { type: 'restore_accepted', sandboxId, restores: undefined }
    }
    await endAgents(sandboxes, session, agents)
    return { type: 'restore_accepted', sandboxId, restores }
  }

  async #startAgent(
    { failedStarts, queues }: StepEffect & { type: 'start_agent' },
    session: Session,
  ): Promise<StepResult> {
    const { permit, timings, signal } = this.#context
    if (!permit.isHeld) {
      if (failedStarts > 0) await backOff(failedStarts, retryBackOff(timings), signal)
      await permit.acquire()
      // The wait may have been long: the sandbox is inspected again.
      return { type: 'step_done' }
    }
    const what = 'The agent could not be started'
    const prepared = await this.#attempt(what, session, queues, () => this.#prepareAgent(session))
    if (prepared.type === 'step_failed' || signal.aborted) return prepared
    const agent = { processId: newId('ag-'), token: newGatewayToken() }
    const { processId } = agent
    const begun = {
      type: 'agent_begun',
      sandboxId: session.sandboxId,
      processId,
      tokenHash: sha256(agent.token),
    } as const
    // Unless the sandbox was lost meanwhile.
    if ((await this.#context.apply(begun)).session.agentProcessId !== processId) return { type: 'step_done' }
    const start = async (): Promise<StepResult> => {
      await startAgent(this.#context, session, agent)
      return { type: 'agent_started' }
    }
    return await this.#attempt(what, session, false, start, processId)
  }

  async #prepareAgent(session: Session): Promise<StepResult> {
    const { sandboxes, orgId } = this.#context
    await endAgents(sandboxes, session, await runningAgents(sandboxes, session))
    // For every agent: the checkpoint of a restore may be older than the directory.
    await sandboxes.files.mkdir(orgId, session.sandboxId, session.agentConfig.cwd, { user: 'root' })
    if (!(await this.#context.read()).agentReady) await writeSkills(this.#context, session)
    return { type: 'step_done' }
  }
}
