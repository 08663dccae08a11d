import type { Creation } from '../lib/creation.ts'
import { SessionRunner } from './runner.ts'
import type { RunnerDeps } from './steps.ts'
import type { SessionReference } from './store.ts'

/** Keeps a runner for each session that has work, and passes changes of sandboxes to it. */
export class SessionRunners {
  readonly #deps: RunnerDeps
  readonly #closing: AbortSignal
  readonly #byId = new Map<string, SessionRunner>()
  readonly #bySandbox = new Map<string, SessionReference>()
  readonly #unsubscribe: () => void

  /** `closing` aborts when the server ends: no session is taken up any more. */
  constructor(deps: RunnerDeps, closing: AbortSignal) {
    this.#deps = deps
    this.#closing = closing
    this.#unsubscribe = deps.bus.subscribe('*', (event) => {
      if (event.type === 'sandbox_changed') void this.#noteSandbox(event.sandboxId, event.status, event.reason)
    })
  }

  /** The runner of a session; a new one for a session at rest. */
  of(session: SessionReference): SessionRunner {
    this.#bySandbox.set(session.sandboxId, session)
    const existing = this.#byId.get(session.id)
    if (existing) return existing
    const runner = new SessionRunner(this.#deps, session, () => this.#drop(session.id, runner))
    this.#byId.set(session.id, runner)
    return runner
  }

  /** Takes a session up, unless those of its organisation rest. */
  start(session: SessionReference): void {
    if (!this.#closing.aborted && !this.#rests(session.orgId)) this.of(session).start()
  }

  /** Leaves the sessions of an organisation; their agents run on. */
  async leave(orgId: string): Promise<void> {
    const left: SessionRunner[] = []
    for (const [sandboxId, session] of this.#bySandbox) {
      if (session.orgId !== orgId) continue
      const runner = this.#byId.get(session.id)
      if (runner !== undefined) left.push(runner)
      this.#byId.delete(session.id)
      this.#bySandbox.delete(sandboxId)
    }
    await Promise.all(left.map((runner) => runner.close()))
  }

  /** Kills the sandbox of a session and ends it. */
  async end(session: SessionReference): Promise<void> {
    const runner = this.of(session)
    try {
      await runner.end()
    } catch (error) {
      // It has stopped driving the session, which is not over: another one goes on.
      this.#drop(session.id, runner)
      this.start(session)
      throw error
    }
    this.#drop(session.id, runner)
    for (const [sandboxId, { id }] of this.#bySandbox) if (id === session.id) this.#bySandbox.delete(sandboxId)
  }

  /** Replaces a lost sandbox by one with this id. */
  async restart(
    session: SessionReference,
    sandboxId: string,
    checkpointId: string | undefined,
    creation?: Creation,
  ): Promise<void> {
    this.#bySandbox.set(sandboxId, { ...session, sandboxId })
    try {
      await this.of(session).restart(sandboxId, checkpointId, creation)
    } catch (error) {
      this.#bySandbox.delete(sandboxId)
      throw error
    }
    this.#bySandbox.delete(session.sandboxId)
  }

  async close(): Promise<void> {
    this.#unsubscribe()
    await Promise.all([...this.#byId.values()].map((runner) => runner.close()))
    this.#byId.clear()
    this.#bySandbox.clear()
  }

  #rests(orgId: string): boolean {
    return this.#deps.isActive?.(orgId) === false
  }

  #drop(sessionId: string, runner: SessionRunner): void {
    if (this.#byId.get(sessionId) === runner) this.#byId.delete(sessionId)
  }

  async #noteSandbox(sandboxId: string, status: string, reason?: string): Promise<void> {
    const session = this.#bySandbox.get(sandboxId)
    if (!session || this.#closing.aborted || this.#rests(session.orgId)) return
    try {
      await this.of(session).noteSandbox(sandboxId, status, reason)
    } catch (error) {
      // The next step inspects the sandbox again.
      this.#deps.log.warn({ err: error, sandboxId }, 'a change of a sandbox was not recorded in its session')
    }
  }
}
