import { ServiceError } from '../errors.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import { newId } from '../lib/id.ts'
import type { DraftPiece } from './draft.ts'
import { hasEnded, reduce } from './reducer.ts'
import type { Effect, Input } from './reducer-types.ts'
import { initialRun, loadState, type RunnerState, type SessionState } from './state.ts'
import type { RunnerDeps } from './steps.ts'
import type { SessionStore } from './store.ts'

type RepositoryDeps = Pick<RunnerDeps, 'store' | 'bus' | 'limits' | 'timings'> & {
  config: Pick<RunnerDeps['config'], 'checkpoints'>
}

/**
 * The state of one session, and the only way to change it. Inputs are reduced one after another; the rows of each are one
 * commit, announced after it. A failed commit may have been applied or not, so everything but `run` is read again. The state
 * leaves out the system prompt and the skills, which can be megabytes a session.
 */
export class SessionRepository {
  readonly sessionId: string
  readonly #deps: RepositoryDeps
  readonly #perform: (effects: readonly Effect[], state: SessionState) => void
  readonly #lock = new KeyedMutex()
  #stored: Omit<SessionState, 'run'> | undefined
  #run = initialRun
  /** Of the last commit. */
  #lastSequence = 0

  /** `perform` begins the effects of each input, after its commit and in the order of the inputs. It must not throw. */
  constructor(
    deps: RepositoryDeps,
    sessionId: string,
    perform: (effects: readonly Effect[], state: SessionState) => void = () => {},
  ) {
    this.#deps = deps
    this.sessionId = sessionId
    this.#perform = perform
  }

  get run(): RunnerState {
    return this.#run
  }

  async read(): Promise<SessionState> {
    return await this.#lock.run(this.sessionId, () => this.#current())
  }

  /** Throws what the reducer throws of a request, and `conflict` for any input that would change an ended session. */
  async apply(input: Input): Promise<SessionState> {
    return await this.#lock.run(this.sessionId, async () => {
      const { store, bus, limits, timings, config } = this.#deps
      const { checkpoints = 'none' } = config
      const context = { limits, timings, checkpoints, now: new Date(), newId }
      const { state, change, effects } = reduce(await this.#current(), input, context)
      let stored: Omit<SessionState, 'run'> = state
      if (change) {
        this.#stored = undefined
        const committed = await store.commit(this.sessionId, change)
        if (committed === undefined) throw hasEnded()
        // The commit returns neither of these; artifacts may not be written yet.
        const { agentConfig, artifacts } = state.session
        stored = { ...state, session: { ...committed.session, agentConfig, artifacts } }
        const { lastSequence } = committed
        this.#lastSequence = lastSequence
        bus.publish({ type: 'session_changed', sessionId: this.sessionId, lastSequence })
      }
      this.#stored = stored
      this.#run = state.run
      const next = { ...stored, run: state.run }
      this.#perform(effects, next)
      return next
    })
  }

  /** Tells followers of an answer that comes after the events of the last commit. */
  tellDraft({ offset, text }: DraftPiece): void {
    const { sessionId } = this
    const afterSequence = this.#lastSequence
    // Not known before the first commit of this process.
    if (afterSequence > 0) this.#deps.bus.publish({ type: 'answer_drafted', sessionId, afterSequence, offset, text })
  }

  /** Forgets what was read, so that it is read again. */
  invalidate(): void {
    this.#stored = undefined
  }

  async #current(): Promise<SessionState> {
    this.#stored ??= await this.#load()
    return { ...this.#stored, run: this.#run }
  }

  async #load(): Promise<Omit<SessionState, 'run'>> {
    const { store } = this.#deps
    const session = await store.session(this.sessionId)
    const head = await store.head(this.sessionId)
    if (!session || !head) throw new ServiceError('not_found', `no session ${this.sessionId}`)
    return await loadState(store, session, head)
  }
}

/** Throws `not_found` when it is no message of a user, `conflict` when it does not wait any more. */
export async function assertQueued(store: SessionStore, sessionId: string, messageId: string): Promise<void> {
  const message = await store.message(sessionId, messageId)
  if (message?.role !== 'user') throw new ServiceError('not_found', `no message ${messageId}`)
  if (message.state !== 'queued') throw new ServiceError('conflict', `the message is ${message.state} already`)
}
