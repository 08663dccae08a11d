import { defined } from '../lib/defined.ts'
import { checkCost, checkSecretEnvs } from './input.ts'
import type { Ownership } from './ownership.ts'
import type { SessionRunners } from './runners.ts'
import type { SessionDeps } from './service.ts'
import { type AgentConfig, spentBudget } from './session.ts'

/** What of the configuration of a session can change while it runs. */
export type ChangeAgentConfig = Partial<
  Pick<AgentConfig, 'maxTokens' | 'maxCostUsd' | 'checkpoints' | 'secretEnvs' | 'capsuleOnError'>
>

interface ReconfigurationContext extends Pick<SessionDeps, 'store' | 'config'> {
  ownership: Ownership
  runners: SessionRunners
  assertOpen: () => void
}

/** Changes limits of sessions. One that is paused goes on when what it has used is within them. */
export class Reconfiguration {
  readonly #context: ReconfigurationContext

  constructor(context: ReconfigurationContext) {
    this.#context = context
  }

  /** Throws `forbidden` for another user, `conflict` when the session has ended, `invalid_request` naming the field. */
  async change(orgId: string, sessionId: string, userId: string, change: ChangeAgentConfig): Promise<void> {
    const { ownership, store, config, runners, assertOpen } = this.#context
    const head = await ownership.steerable(orgId, sessionId, userId)
    assertOpen()
    const session = await ownership.whole(head)
    const { maxCostUsd, secretEnvs } = change
    if (maxCostUsd !== undefined) checkCost(maxCostUsd, session.agentConfig.model, config)
    checkSecretEnvs(secretEnvs, session.agentConfig.envs)
    await store.changeAgentConfig(sessionId, change)
    const agentConfig = { ...session.agentConfig, ...defined(change) }
    const isWithinBudget = spentBudget({ ...session, agentConfig }, config.prices) === undefined
    await runners.of(head).reconfigure(change, isWithinBudget)
  }
}
