import { ServiceError } from '../errors.ts'
import { defined } from '../lib/defined.ts'
import { assertInput } from '../sandbox/index.ts'
import { checkCost } from './input.ts'
import type { Ownership } from './ownership.ts'
import type { SessionRunners } from './runners.ts'
import type { SessionDeps } from './service.ts'
import { type AgentConfig, type Session, sessionCostUsd } from './session.ts'

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
    const session = await store.session(sessionId, orgId)
    if (session === undefined) throw new ServiceError('not_found', `no session ${sessionId}`)
    const { maxCostUsd, secretEnvs } = change
    if (maxCostUsd !== undefined) checkCost(maxCostUsd, session.agentConfig.model, config)
    for (const name of secretEnvs ?? [])
      assertInput(
        Object.hasOwn(session.agentConfig.envs, name),
        'agent_config.secret_envs',
        'must name variables of `envs`',
      )
    await store.changeAgentConfig(sessionId, change)
    const agentConfig = { ...session.agentConfig, ...defined(change) }
    await runners.of(head).reconfigure(change, this.#isWithinBudget({ ...session, agentConfig }))
  }

  #isWithinBudget(session: Session): boolean {
    const { maxTokens = Infinity, maxCostUsd = Infinity, model } = session.agentConfig
    if (session.inputTokens + session.outputTokens >= maxTokens) return false
    if (maxCostUsd === Infinity) return true
    const cost = sessionCostUsd(session, this.#context.config.prices?.get(model))
    return cost !== undefined && cost < maxCostUsd
  }
}
