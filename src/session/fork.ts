import { isServiceError, ServiceError } from '../errors.ts'
import { newId } from '../lib/id.ts'
import type { Checkpoint, CheckpointKind, SandboxService } from '../sandbox/index.ts'
import { unusedTokenHash } from './draft.ts'
import type { Message, Session, SessionEvent } from './session.ts'
import type { SessionStore } from './store.ts'

const namePrefix = 'fork '

interface ForkDeps {
  store: SessionStore
  sandboxes: SandboxService
}

/**
 * Writes down a session that goes on from where an idle one stands, with a sandbox that is not started yet. Its checkpoint is its
 * own and goes when that sandbox has started (`dropForkCheckpoint`). Throws what the checkpoint throws, with nothing left.
 */
export async function forkSession(deps: ForkDeps, source: Session): Promise<Session> {
  const { store, sandboxes } = deps
  const id = newId('session_')
  const checkpoint = await takeCheckpoint(deps, source, id)
  try {
    const { fork, messages, event } = copyOf(source, await store.messages(source.id), { id, checkpoint })
    await store.createSession(fork, messages, event)
    return fork
  } catch (error) {
    await deleteCheckpoint(sandboxes, checkpoint)
    throw error
  }
}

/** Removes the checkpoint that was made for this fork. A repeat is harmless. */
export async function dropForkCheckpoint(sandboxes: SandboxService, session: Session): Promise<void> {
  const { orgId, checkpointId, forkCheckpointOf } = session
  if (checkpointId === undefined || forkCheckpointOf === undefined) return
  await deleteCheckpoint(sandboxes, { id: checkpointId, orgId, sandboxId: forkCheckpointOf })
}

/** With memory where that can be had, so that servers of the source run on in the fork; else of the disk alone. */
async function takeCheckpoint(deps: ForkDeps, source: Session, forkId: string): Promise<Checkpoint> {
  const { checkpoints } = deps.sandboxes
  const { orgId, sandboxId } = source
  await dropAbandoned(deps, source)
  const name = `${namePrefix}${forkId}`
  const id = forkId.replace('session_', 'cp-')
  const take = async (kind: CheckpointKind): Promise<Checkpoint> => {
    await checkpoints.create(orgId, sandboxId, { id, name, kind })
    const checkpoint = await checkpoints.settled(orgId, id)
    if (checkpoint.status === 'ready') return checkpoint
    await deleteCheckpoint(deps.sandboxes, checkpoint)
    throw new ServiceError('unavailable', `the session cannot be forked: ${checkpoint.error ?? 'no reason known'}`)
  }
  try {
    return await take('full')
  } catch (error) {
    // No CRIU, memory that it cannot dump, or as many full checkpoints as there may be.
    if (!isServiceError(error)) throw error
    return await take('disk_only')
  }
}

/**
 * Removes checkpoints of forks that a server did not live to write down. Clients choose names but no ids: only one whose
 * id and name are those of the same fork is ours.
 */
async function dropAbandoned({ store, sandboxes }: ForkDeps, { orgId, sandboxId }: Session): Promise<void> {
  for (const checkpoint of await sandboxes.checkpoints.list(orgId, sandboxId)) {
    const forkId = checkpoint.id.replace('cp-', 'session_')
    if (checkpoint.name !== `${namePrefix}${forkId}`) continue
    const fork = await store.session(forkId, orgId)
    if (fork?.checkpointId !== checkpoint.id) await deleteCheckpoint(sandboxes, checkpoint)
  }
}

async function deleteCheckpoint(
  sandboxes: SandboxService,
  { orgId, sandboxId, id }: Pick<Checkpoint, 'orgId' | 'sandboxId' | 'id'>,
): Promise<void> {
  try {
    await sandboxes.checkpoints.delete(orgId, sandboxId, id)
  } catch (error) {
    if (!isServiceError(error, 'not_found')) throw error
  }
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
