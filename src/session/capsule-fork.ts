import type { FairYield } from '../lib/async/fair-yield.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import { unusedTokenHash } from './boot.ts'
import { copyOf } from './forked-session.ts'
import {
  type AgentConfig,
  type Message,
  type Session,
  type SessionEvent,
  startedEvent,
  unusedCounters,
} from './session.ts'
import type { SessionStore } from './store.ts'
import { Transcript } from './transcript.ts'
import type { Point } from './turn.ts'

/**
 * A session of another user, perhaps, that goes on from a point of this one. It has the conversation and the disk of the point, and the agent's
 * configuration without what is secret: not the variables that `secret_envs` names, no secret store, no volumes. It has a sandbox, a token of the
 * gateway and a budget of its own.
 */
export async function capsuleFork(
  { store, pages }: { store: SessionStore; pages: FairYield },
  source: Session,
  point: Point,
  { userId, name }: { userId: string; name?: string },
): Promise<{ fork: Session; messages: Message[]; event: SessionEvent }> {
  const said = await new Transcript(store, source, point.afterEvent).allMessages(pages)
  const { systemPrompt } = (await store.instructions(source.id)) ?? {}
  const now = new Date()
  const fork: Session = {
    ...{ id: newId('session_'), orgId: source.orgId, userId },
    ...defined({ name, forkPoint: point.turnId }),
    ...{ status: 'running', activity: 'starting', sandboxId: newId('sb-') },
    ...{ title: source.title, ...point.project },
    agentConfig: {
      ...shareable(source.agentConfig),
      ...defined({ systemPrompt }),
      skills: await store.skills(source.id),
      handedOverIn: point.checkpointId,
    },
    checkpointId: point.checkpointId,
    forkedFrom: source.id,
    gatewayTokenHash: unusedTokenHash(),
    ...unusedCounters,
    createdAt: now,
    updatedAt: now,
  }
  return {
    fork,
    messages: said.map(copyOf),
    event: startedEvent('The session goes on from a moment of another one.', now),
  }
}

function shareable({
  envs,
  secretEnvs = [],
  secretStore: _store,
  volumes: _volumes,
  ...config
}: AgentConfig): AgentConfig {
  const kept = Object.entries(envs).filter(([name]) => !secretEnvs.includes(name))
  return { ...config, ...(secretEnvs.length === 0 ? {} : { secretEnvs }), envs: Object.fromEntries(kept) }
}
