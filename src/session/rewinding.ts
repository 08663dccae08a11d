import { ServiceError } from '../errors.ts'
import type { Creation } from '../lib/creation.ts'
import type { SessionPoints } from './points.ts'
import type { Input } from './reducer-types.ts'
import type { PendingRewind, Session } from './session.ts'
import type { SessionState } from './state.ts'
import type { StateWatch } from './state-watch.ts'

/** Where a rewind goes, for the session as it stands. */
export type RewindDecision = (session: Session) => Promise<Omit<PendingRewind, 'undoCheckpointId'>>

/** How long a rewind waits for the end of the turn that it has interrupted. */
const turnEndMs = 30_000

interface RewindingContext {
  points: SessionPoints
  watch: StateWatch
  apply: (input: Input) => Promise<SessionState>
  /** Until it succeeds, or the session is driven no more. */
  applyAtLast: (input: Input) => Promise<void>
  /** Runs work while nothing else keeps turns of the session from beginning. */
  withoutPauses: <Result>(work: () => Promise<Result>) => Promise<Result>
}

/** The rewinds of one session, one at a time. */
export class Rewinding {
  readonly #context: RewindingContext
  #isUnderWay = false
  /** Why the last one was called off. */
  #failure: ServiceError | undefined

  constructor(context: RewindingContext) {
    this.#context = context
  }

  /** The step under way could not carry one out. */
  note(failure: ServiceError): void {
    this.#failure = failure
  }

  /**
   * Takes the session to a point. `decide` names it, for the session as it stands between two turns; a turn that runs is interrupted, and
   * messages that wait are taken back. Returns when that is carried out. Throws `conflict` while another rewind is under way, what a
   * checkpoint of the present throws, and why it could not be carried out; then the session goes on as it was.
   */
  async run(decide: RewindDecision, creation?: Creation): Promise<PendingRewind> {
    if (this.#isUnderWay) throw new ServiceError('conflict', 'a rewind of the session is under way')
    this.#isUnderWay = true
    try {
      return await this.#context.withoutPauses(() => this.#runHeld(decide, creation))
    } finally {
      this.#isUnderWay = false
    }
  }

  async #runHeld(decide: RewindDecision, creation: Creation | undefined): Promise<PendingRewind> {
    const { points, watch, apply, applyAtLast } = this.#context
    try {
      await apply({ type: 'hold' })
      const { session } = await watch.until(({ turn, run }) => turn === undefined && !run.isSaving, turnEndMs)
      const decided = await decide(session)
      const rewind = await points.take(session, { origin: 'undo', kind: 'turn' }, async (undo) => {
        const named = { ...decided, undoCheckpointId: undo.checkpointId }
        this.#failure = undefined
        await apply({ type: 'rewind_decided', rewind: named, undo, creation })
        return named
      })
      await watch.until(({ session: { pendingRewind } }) => pendingRewind === undefined)
      this.#throwFailure()
      return rewind
    } finally {
      await applyAtLast({ type: 'unpause' })
    }
  }

  #throwFailure(): void {
    if (this.#failure !== undefined) throw this.#failure
  }
}
