import type { Creation } from '../lib/creation.ts'
import type { FairYield } from '../lib/async/fair-yield.ts'
import { newId } from '../lib/id.ts'
import type { Checkpoint } from '../sandbox/index.ts'
import { unusedTokenHash } from './boot.ts'
import type { ForkCheckpoints } from './fork-checkpoints.ts'
import { messagePages } from './history.ts'
import type { Message, Session, SessionEvent } from './session.ts'
import type { SessionStore } from './store.ts'

interface ForkDeps {
  store: SessionStore
  forkCheckpoints: ForkCheckpoints
  /** Of histories that are read. */
  pages: FairYield
}

/**
 * Writes down a session that goes on from where an idle one stands, with a sandbox that is not started yet. Its checkpoint is its
 * own and goes when that sandbox has started. Throws what the checkpoint throws, with nothing left.
 */
export async function forkSession(
  { store, forkCheckpoints, pages }: ForkDeps,
  source: Session,
  creation?: Creation,
): Promise<Session> {
  const id = newId('session_')
  return await forkCheckpoints.take(source, id, async (checkpoint) => {
    const said: Message[] = []
    for await (const page of messagePages(store, pages, source.id)) said.push(...page)
    const { fork, messages, event } = copyOf(source, said, { id, checkpoint })
    await store.createSession(fork, messages, event, { configOf: source.id, creation })
    return fork
  })
}

function copyOf(
  source: Session,
  said: readonly Message[],
  { id, checkpoint }: { id: string; checkpoint: Checkpoint },
): { fork: Session; messages: Message[]; event: SessionEvent } {
  const now = new Date()
  const { agentProcessId: _process, interruptedMessageId: _interrupted, ...kept } = source
  const fork: Session = {
    ...kept,
    id,
    activity: 'starting',
    sandboxId: newId('sb-'),
    checkpointId: checkpoint.id,
    forkedFrom: source.id,
    forkCheckpointOf: source.sandboxId,
    gatewayTokenHash: unusedTokenHash(),
    agentOffset: 0,
    sandboxRestores: 0,
    inputTokens: 0,
    cacheReadTokens: 0,
    cacheWriteTokens: 0,
    outputTokens: 0,
    costNanoUsd: 0,
    createdAt: now,
    updatedAt: now,
  }
  // What came while the checkpoint was taken is the source's alone.
  const messages = said.filter(({ state }) => state !== 'queued').map((message) => ({ ...message, id: newId('msg_') }))
  const event: SessionEvent = {
    id: newId('evt_'),
    type: 'session_started',
    level: 'info',
    message: `The session goes on from where ${source.id} stood.`,
    createdAt: now,
  }
  return { fork, messages, event }
}
