import { isServiceError, ServiceError } from '../errors.ts'
import { newId } from '../lib/id.ts'
import { endAgents, findSandbox, runningAgents } from './boot.ts'
import { readConversation, writeConversation } from './conversation.ts'
import { messagePages } from './history.ts'
import type { AdoptedTurn, StepResult } from './reducer-types.ts'
import type { PendingRewind, Session } from './session.ts'
import type { RunnerContext } from './steps.ts'

type RewindContext = Pick<RunnerContext, 'sandboxes' | 'store' | 'pages' | 'log' | 'archiveForks'>

/**
 * Carries out a rewind that is decided. A repeat, also by a later server, does the same again. After a failure the sandbox has the present
 * that it had, unless the driver says otherwise.
 */
export async function carryOut(context: RewindContext, session: Session, rewind: PendingRewind): Promise<StepResult> {
  const { sandboxes, store, log } = context
  const { sandboxId } = session
  const { what, undoCheckpointId } = rewind
  try {
    await change(context, session, rewind)
    const { restores = session.sandboxRestores } = (await findSandbox(sandboxes, session)) ?? {}
    const adopted = await adopt(context, session, rewind)
    const fromEvent = await store.lastSequence(session.id)
    return { type: 'rewind_done', sandboxId, undoCheckpointId, restores, fromEvent, adopted }
  } catch (error) {
    log.warn({ err: error, sessionId: session.id, what }, 'a rewind could not be carried out')
    const told = isServiceError(error) ? error : new ServiceError('internal_error', 'the rewind has failed')
    return { type: 'rewind_failed', undoCheckpointId, error: told }
  }
}

async function change(
  context: RewindContext,
  session: Session,
  { what, checkpointId, undoCheckpointId }: PendingRewind,
): Promise<void> {
  const { sandboxes, log } = context
  const { orgId, sandboxId } = session
  const kept = what === 'machine' ? undoCheckpointId : checkpointId
  const conversation = what === 'all' ? undefined : await readConversation(sandboxes, session, kept)
  const before = await findSandbox(sandboxes, session)
  try {
    if (what !== 'conversation') await sandboxes.checkpoints.restoreFrom(orgId, sandboxId, checkpointId)
    // They came back with the memory of the checkpoint, or hold the conversation that is to go.
    await endAgents(sandboxes, session, await runningAgents(sandboxes, session))
    if (conversation !== undefined) await writeConversation(sandboxes, session, conversation)
  } catch (error) {
    const after = await findSandbox(sandboxes, session)
    const isRestored = after?.restores !== before?.restores
    if (isRestored || what === 'conversation') log.warn({ err: error, sessionId: session.id }, 'a rewind is taken back')
    if (isRestored) await sandboxes.checkpoints.restoreFrom(orgId, sandboxId, undoCheckpointId)
    else if (what === 'conversation')
      await writeConversation(sandboxes, session, await readConversation(sandboxes, session, undoCheckpointId))
    throw error
  }
}

/** The other forks are archived within the step: what follows its commit would be lost with the server. */
async function adopt(
  context: RewindContext,
  session: Session,
  { adoptedFrom, adoptedTurnId }: PendingRewind,
): Promise<AdoptedTurn[]> {
  if (adoptedFrom === undefined) return []
  const turns = await turnsOf(context, adoptedFrom, adoptedTurnId)
  await context.archiveForks(session, adoptedFrom)
  return turns
}

/** What a fork has said since it began, for the session that adopts it. */
async function turnsOf(
  { store, pages }: RewindContext,
  sessionId: string,
  lastId = newId('msg_'),
): Promise<AdoptedTurn[]> {
  const { headTurnId } = (await store.head(sessionId)) ?? {}
  const turns: AdoptedTurn[] = []
  const byId = new Map<string, AdoptedTurn>()
  for await (const page of messagePages(store, pages, sessionId)) {
    for (const { turnId, ...message } of page) {
      if (turnId === undefined) continue
      const turn =
        byId.get(turnId) ??
        (await adoptedTurn(store, sessionId, turnId, turnId === headTurnId ? lastId : newId('msg_')))
      if (!byId.has(turnId)) turns.push(turn)
      byId.set(turnId, turn)
      const id = message.role === 'user' ? turn.id : newId('msg_')
      turn.messages.push({ ...message, id, turnId: turn.id })
    }
  }
  return turns
}

async function adoptedTurn(
  store: RewindContext['store'],
  sessionId: string,
  turnId: string,
  id: string,
): Promise<AdoptedTurn> {
  const { subtype = 'success', preview = 'none' } = (await store.turn(sessionId, turnId)) ?? {}
  return { id, subtype, preview, messages: [] }
}
