import { ServiceError } from '../errors.ts'
import type { EventBus } from '../events/bus.ts'
import { KeyedMutex } from '../lib/async/mutex.ts'
import { Draft, noted, type Progress } from './transaction.ts'
import type { OutputLimits } from './output-budget.ts'
import type { Session } from './session.ts'
import type { SessionHead, SessionStore } from './store.ts'
import { loadTurn } from './state.ts'

/**
 * The progress of one session as the store has it, and the only way to change it. Writes follow one another; each is one
 * commit, and is known here only once it is committed. After a failed one, of which nobody can say whether it was
 * applied, everything is read again. It leaves out the system prompt and the skills, which can be megabytes a session.
 */
export class Ledger {
  readonly sessionId: string
  readonly #store: SessionStore
  readonly #bus: EventBus
  readonly #limits: OutputLimits
  readonly #lock = new KeyedMutex()
  #progress: Progress | undefined
  #lastSequence = 0

  constructor(deps: { store: SessionStore; bus: EventBus; limits: OutputLimits }, sessionId: string) {
    this.sessionId = sessionId
    this.#store = deps.store
    this.#bus = deps.bus
    this.#limits = deps.limits
  }

  async read(): Promise<Progress> {
    return await this.#lock.run(this.sessionId, () => this.#current())
  }

  /** Forgets what is known, so that it is read again. */
  invalidate(): void {
    this.#progress = undefined
  }

  /**
   * Lets `fill` say what happened and commits that. `fill` may read the store; it must not wait for a sandbox. Throws
   * `conflict` once the session has ended.
   */
  async write<Result>(fill: (draft: Draft) => Result | Promise<Result>): Promise<Result> {
    return await this.#lock.run(this.sessionId, async () => {
      const draft = new Draft(await this.#current(), this.#limits)
      if (draft.progress.session.status === 'ended') throw hasEnded()
      const result = await fill(draft)
      if (draft.isEmpty) return result
      this.#progress = undefined
      const committed = await this.#store.commit(this.sessionId, draft.change)
      if (committed === undefined) throw hasEnded()
      this.#lastSequence = committed.lastSequence
      // What the store does not return, and what it is not told yet.
      const { agentConfig, artifacts } = draft.progress.session
      this.#progress = { ...draft.progress, session: { ...committed.session, agentConfig, artifacts } }
      this.#bus.publish({ type: 'session_changed', sessionId: this.sessionId, lastSequence: this.#lastSequence })
      return result
    })
  }

  async #current(): Promise<Progress> {
    return (this.#progress ??= await this.#load())
  }

  async #load(): Promise<Progress> {
    const session = await this.#store.session(this.sessionId)
    const head = await this.#store.head(this.sessionId)
    if (!session || !head) throw new ServiceError('not_found', `no session ${this.sessionId}`)
    this.#lastSequence = head.lastSequence
    let progress = await this.#withQueue(session, head)
    // An event says no less than all before it of the same type.
    for (const type of await this.#store.eventTypes(this.sessionId)) progress = { ...progress, ...noted(type) }
    return progress
  }

  async #withQueue(session: Session, { streamBytes, historyBytes }: SessionHead): Promise<Progress> {
    const turn = await loadTurn(this.#store, this.sessionId)
    const queued = (await this.#store.queuedMessageIds(this.sessionId)).length
    // What an agent said outside of turns is forgotten with the server, but for `ready`, which it says first.
    const ready = session.agentOffset > 0 || session.activity !== 'starting'
    const idle = { ready: ready && session.agentProcessId !== undefined, lines: 0, errors: 0 }
    const seen = { sandboxReady: false, agentReady: false, previewReady: false, hibernated: false }
    return { session, turn, queued, streamBytes, historyBytes, idle, artifactWrites: 0, ...seen }
  }
}

export function hasEnded(): ServiceError {
  return new ServiceError('conflict', 'the session has ended')
}

/** Throws `not_found` when it is no message of a user, `conflict` when it does not wait any more. */
export async function demandQueued(store: SessionStore, sessionId: string, messageId: string): Promise<void> {
  const message = await store.message(sessionId, messageId)
  if (message?.role !== 'user') throw new ServiceError('not_found', `no message ${messageId}`)
  if (message.state !== 'queued') throw new ServiceError('conflict', `the message is ${message.state} already`)
}
