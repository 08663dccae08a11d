import type { FairYield } from '../lib/async/fair-yield.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import { copyOf, forkOf, wholeConfig } from './forked-session.ts'
import { type AgentConfig, type Message, type Session, type SessionEvent, startedEvent } from './session.ts'
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
  const { checkpointId, turnId: forkPoint, project } = point
  const { userEmail: _email, userName: _name, ...shared } = source
  const own = { id: newId('session_'), checkpointId, ...defined({ name, forkPoint }) }
  const fork: Session = {
    ...forkOf({ ...shared, userId }, own),
    ...project,
    agentConfig: { ...shareable(await wholeConfig(store, source)), handedOverIn: checkpointId },
  }
  return {
    fork,
    messages: said.map(copyOf),
    event: startedEvent('The session goes on from a moment of another one.', fork.createdAt),
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
