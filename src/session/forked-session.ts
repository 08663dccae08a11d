import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import { unusedTokenHash } from './boot.ts'
import { type AgentConfig, type Message, type Session, unusedCounters } from './session.ts'
import type { SessionStore } from './store.ts'

/** A session that goes on from another one, before it has done anything of its own. */
export function forkOf(
  source: Session,
  own: Pick<Session, 'id' | 'checkpointId'> & Partial<Pick<Session, 'name' | 'forkPoint' | 'forkCheckpointOf'>>,
): Session {
  const { orgId, userId, userEmail, userName, title, framework, artifacts, agentConfig } = source
  const now = new Date()
  return {
    ...{ orgId, userId, title, framework, artifacts, agentConfig },
    ...defined({ userEmail, userName }),
    ...own,
    status: 'running',
    activity: 'starting',
    sandboxId: newId('sb-'),
    forkedFrom: source.id,
    gatewayTokenHash: unusedTokenHash(),
    ...unusedCounters,
    createdAt: now,
    updatedAt: now,
  }
}

/** The configuration with the texts that the store leaves out of a session: megabytes. */
export async function wholeConfig(
  store: Pick<SessionStore, 'instructions' | 'skills'>,
  { id, agentConfig }: Session,
): Promise<AgentConfig> {
  const { systemPrompt } = (await store.instructions(id)) ?? {}
  return { ...agentConfig, ...defined({ systemPrompt }), skills: await store.skills(id) }
}

/** A message as a fork has it: its turns stay with the source. */
export function copyOf({ turnId: _turn, isLeft: _left, ...message }: Message): Message {
  return { ...message, id: newId('msg_') }
}
