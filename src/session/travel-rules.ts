import { ServiceError } from '../errors.ts'
import { defined } from '../lib/defined.ts'
import type { Decision } from './decision.ts'
import type { Effect, Input, StepEffect } from './reducer-types.ts'
import type { Session } from './session.ts'
import type { SessionState } from './state.ts'
import type { Transaction } from './transaction.ts'

/**
 * The rules about the states of a session that are kept: the checkpoint of a turn, before which the next turn does not begin, and a rewind
 * to one:
 *
 *     held ──checkpoint of the present──► decided ──step `rewind`──► carried out, or called off
 *
 * The commit that decides it is the one that counts: whatever server drives the session from then on carries it out first.
 */
export class TravelRules {
  readonly #decision: Decision
  readonly #transaction: Transaction
  readonly #effects: Effect[]

  constructor(decision: Decision) {
    this.#decision = decision
    this.#transaction = decision.transaction
    this.#effects = decision.effects
  }

  get #state(): SessionState {
    return this.#decision.state
  }

  get #session(): Session {
    return this.#state.session
  }

  /** Whether a checkpoint has to be taken first; begins to take it, unless that is under way. */
  savesFirst(): boolean {
    const { unsavedTurnId } = this.#session
    const { isSaving, isHeld } = this.#state.run
    if (isSaving || isHeld || unsavedTurnId === undefined) return isSaving
    this.#transaction.setRun({ isSaving: true })
    this.#effects.push({ type: 'save_turn', turnId: unsavedTurnId })
    return true
  }

  /** The checkpoint of a turn was taken, or could not be: then the reason is told, and the session goes on without it. */
  endSave({ turnId, point, failure }: Input & { type: 'turn_saved' }): void {
    this.#transaction.setRun({ isSaving: false })
    const { unsavedTurnId } = this.#session
    // A rewind or a restart has come between.
    if (unsavedTurnId === undefined) return this.#dropPoint(point?.checkpointId)
    // Otherwise a message that waited was interrupted meanwhile: its turn has a checkpoint of its own to come.
    if (unsavedTurnId === turnId) this.#transaction.set({ unsavedTurnId: undefined })
    if (point === undefined)
      return this.#transaction.warn('checkpoint_failed', `The turn has no checkpoint: ${failure}.`)
    const { checkpointId, afterEvent, kind, sizeBytes, durationMs } = point
    this.#transaction.change.addPoint = point
    this.#transaction.stream({
      type: 'checkpoint_created',
      checkpoint_id: checkpointId,
      after_event: afterEvent,
      message_id: turnId,
      kind,
      size_bytes: sizeBytes,
      duration_ms: durationMs,
    })
    this.#effects.push({ type: 'tend_points', turnId })
  }

  /** Lets no turn begin, and ends the one that runs. */
  hold(): void {
    if (this.#session.pendingRewind !== undefined) throw new ServiceError('conflict', 'a rewind is under way')
    this.#transaction.setRun({ isPaused: true, isHeld: true })
    if (this.#state.turn === undefined) return
    this.#transaction.interrupt()
    this.#decision.wantWake()
  }

  /** From here on nothing happens before the rewind is carried out. Messages that wait now are taken back with it. */
  decide({ rewind, undo, creation }: Input & { type: 'rewind_decided' }): void {
    if (this.#session.pendingRewind !== undefined) throw new ServiceError('conflict', 'a rewind is under way')
    if (this.#state.turn !== undefined) throw new ServiceError('conflict', 'the session works')
    const transaction = this.#transaction
    if (creation) transaction.change.made = { creation, id: rewind.undoCheckpointId }
    transaction.change.addPoint = undo
    transaction.endWait()
    transaction.set({ pendingRewind: { ...rewind, queuedIds: [...this.#state.queuedIds] }, unsavedTurnId: undefined })
    this.#effects.push({ type: 'end_capacity_pause' }, { type: 'detach' })
  }

  /** The step comes before all others. */
  findStep(): StepEffect | undefined {
    const { pendingRewind } = this.#session
    return pendingRewind && { type: 'rewind', rewind: pendingRewind }
  }

  complete({ sandboxId, undoCheckpointId, restores, fromEvent, adopted }: Input & { type: 'rewind_done' }): void {
    const { pendingRewind: rewind } = this.#session
    if (rewind?.undoCheckpointId !== undoCheckpointId || this.#session.sandboxId !== sandboxId) return
    const { what, checkpointId, toEvent, project, restoredMessageId, adoptedFrom } = rewind
    const transaction = this.#transaction
    const turnId = transaction.adoptTurns(adopted, rewind.turnId)
    const cancelled = this.#state.queuedIds.filter((id) => rewind.queuedIds?.includes(id))
    for (const id of cancelled) transaction.cancelMessage(id)
    if (cancelled.length > 0)
      transaction.warn('messages_cancelled', `The rewind has cancelled messages that waited: ${cancelled.join(', ')}.`)
    transaction.stream({
      type: 'rewound',
      to_event: toEvent,
      from_event: fromEvent + transaction.change.addStream.length,
      what,
      undo_checkpoint_id: undoCheckpointId,
    })
    const known = defined({ turnId, restoredMessageId, adoptedFrom })
    const createdAt = this.#decision.context.now
    transaction.change.rewind = { what, checkpointId, undoCheckpointId, ...known, createdAt }
    transaction.set({ pendingRewind: undefined, sandboxRestores: restores })
    if (what !== 'machine') transaction.set({ headTurnId: turnId })
    if (what !== 'conversation') transaction.set({ artifacts: project.artifacts, framework: project.framework })
    const whither = adoptedFrom === undefined ? `event ${toEvent}` : `the state of ${adoptedFrom}`
    transaction.note('session_rewound', 'info', `The session has gone to ${whither} (${what}).`)
    this.#goOn()
  }

  /** It could not be carried out. The sandbox is as it was, or the next inspection finds what has become of it. */
  callOff({ undoCheckpointId, error }: Input & { type: 'rewind_failed' }): void {
    if (this.#session.pendingRewind?.undoCheckpointId !== undoCheckpointId) return
    this.#transaction.set({ pendingRewind: undefined })
    this.#transaction.warn('rewind_failed', `The rewind was called off: ${error.message}.`)
    // Its sandbox was lost meanwhile: the session has failed.
    if (this.#state.run.lostSandboxId === this.#session.sandboxId) return
    this.#goOn()
  }

  /** The agent begins anew: it has the conversation in its memory that it had before. */
  #goOn(): void {
    this.#transaction.dropAgent()
    const counts = { failedStarts: 0, attachFailures: 0, backOffFailures: 0, idleRestarts: 0 }
    // A loss that was reported during the rewind is not the last word on its sandbox: the next inspection has that.
    this.#transaction.setRun({ ...counts, lostSandboxId: undefined })
    if (this.#session.activity !== 'paused') this.#transaction.transition('starting')
    this.#decision.wantWake()
  }

  /** Nobody will name it. */
  #dropPoint(checkpointId: string | undefined): void {
    if (checkpointId !== undefined) this.#effects.push({ type: 'drop_point', checkpointId })
  }

  /** The limits of the session have changed. */
  reconfigure({ agentConfig, isWithinBudget }: Input & { type: 'reconfigured' }): void {
    // The store has them: only what the state has read changes.
    this.#transaction.state = {
      ...this.#state,
      session: { ...this.#session, agentConfig: { ...this.#session.agentConfig, ...agentConfig } },
    }
    if (this.#session.pausedFor === undefined || !isWithinBudget) return
    this.#transaction.set({ pausedFor: undefined })
    this.#transaction.note('session_continued', 'info', 'The budget of the session was raised.')
    if (this.#session.activity === 'paused') this.#transaction.settle()
    this.#decision.wantWake()
  }
}
