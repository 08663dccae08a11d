import { isServiceError } from '../errors.ts'
import type { SandboxService, SandboxStatus } from '../sandbox/index.ts'
import type { WorkerDeps } from './agent-link.ts'
import { bootSandbox, endAgents, findSandbox, runningAgents } from './boot.ts'
import { hasWork, type Progress } from './draft.ts'
import { dropForkCheckpoint } from './fork-checkpoints.ts'
import type { Ledger } from './ledger.ts'
import type { Session } from './session.ts'

/** What the worker of the session does for this link. */
export interface SandboxLife {
  /** Aborts when the session ends or the server leaves it. */
  readonly signal: AbortSignal
  /** Leaves the attachment to the agent. */
  detach(): void
  /** The next step is to be taken. */
  poke(): void
}

/**
 * The sandbox of a session: boots it, holds it awake, and writes down what becomes of it.
 *
 *     (none) ──boot──► ready ⇄ asleep        any ──► lost, until another one takes its place
 */
export class SandboxLink {
  readonly #deps: WorkerDeps
  readonly #ledger: Ledger
  readonly #orgId: string
  readonly #life: SandboxLife
  #release: (() => void) | undefined
  #lostId: string | undefined

  constructor(deps: WorkerDeps, ledger: Ledger, orgId: string, life: SandboxLife) {
    this.#deps = deps
    this.#ledger = ledger
    this.#orgId = orgId
    this.#life = life
  }

  /** It was lost after it had run: until another one takes its place, messages cannot go on. */
  isLost(sandboxId: string): boolean {
    return this.#lostId === sandboxId
  }

  /** One that is gone is as good as stopped. */
  async status(sandboxId: string): Promise<SandboxStatus> {
    return (await findSandbox(this.#deps.sandboxes, this.#orgId, sandboxId))?.status ?? 'stopped'
  }

  async boot(session: Session): Promise<void> {
    const { sandboxes } = this.#deps
    await bootSandbox(sandboxes, session, this.#life.signal)
    this.#life.signal.throwIfAborted()
    if (session.checkpointId !== undefined) {
      await endAgents(sandboxes, session, await runningAgents(sandboxes, session))
    }
    const replaced = await this.#ledger.write((draft) => {
      if (draft.progress.session.sandboxId !== session.sandboxId) return true
      draft.note('sandbox_ready', 'info', 'The sandbox is ready.')
      return false
    })
    if (replaced) await deleteSandbox(sandboxes, session)
  }

  /** Awake from here on while there is work; without any it is free to fall asleep. */
  hold(progress: Progress): void {
    if (!hasWork(progress) || this.#life.signal.aborted) return this.letSleep()
    this.#release ??= this.#deps.sandboxes.previews.keepAlive(progress.session.sandboxId)
  }

  letSleep(): void {
    this.#release?.()
    this.#release = undefined
  }

  /** The fork stands on its own; a checkpoint that cannot be removed now is tried again by the next server. */
  async endForkCheckpoint(session: Session): Promise<void> {
    if (session.forkCheckpointOf === undefined) return
    try {
      await dropForkCheckpoint(this.#deps.sandboxes, session)
      await this.#ledger.write((draft) => draft.set({ checkpointId: undefined, forkCheckpointOf: undefined }))
    } catch (error) {
      this.#deps.log.warn({ err: error, sessionId: session.id }, 'the checkpoint of a fork was left behind')
    }
  }

  async fellAsleep(): Promise<void> {
    await this.#ledger.write((draft) => {
      if (!draft.progress.hibernated) draft.note('sandbox_hibernated', 'info', 'The sandbox hibernates.')
    })
    this.#life.detach()
  }

  async wokeUp(): Promise<void> {
    await this.#ledger.write((draft) => {
      if (draft.progress.hibernated) draft.note('sandbox_resumed', 'info', 'The sandbox runs again.')
    })
  }

  /** A client has put the sandbox back to a checkpoint, and the session has not taken note of it. */
  async isRestored({ sandboxId, sandboxRestores }: Session): Promise<boolean> {
    const sandbox = await findSandbox(this.#deps.sandboxes, this.#orgId, sandboxId)
    return sandbox !== undefined && sandbox.restores !== sandboxRestores
  }

  /** Takes note of a restore: ends agents that came back with the memory, and the turn, of which nothing is left. */
  async acceptRestore(session: Session): Promise<void> {
    const { sandboxes } = this.#deps
    // Waits for a restore that is under way, and one that failed is not counted any more.
    const agents = await runningAgents(sandboxes, session)
    const sandbox = await findSandbox(sandboxes, this.#orgId, session.sandboxId)
    if (sandbox === undefined || sandbox.restores === session.sandboxRestores) return
    await endAgents(sandboxes, session, agents)
    await this.#ledger.write((draft) => {
      if (draft.progress.session.sandboxId === session.sandboxId) draft.restored(sandbox.restores)
    })
  }

  /** Notices, for a session that has failed already, whether its sandbox is there. */
  async look({ sandboxId }: Session): Promise<void> {
    const status = await this.status(sandboxId)
    this.#lostId = status === 'stopped' || status === 'error' ? sandboxId : undefined
  }

  /** Fails the session, once for each sandbox. */
  async lose(status: 'stopped' | 'error', reason?: string): Promise<void> {
    const { sandboxId } = (await this.#ledger.read()).session
    if (this.isLost(sandboxId) || this.#life.signal.aborted) return
    // At once, so that who else notices it meanwhile does not tell it again.
    this.#lostId = sandboxId
    try {
      this.#life.detach()
      const sandbox = await findSandbox(this.#deps.sandboxes, this.#orgId, sandboxId)
      const code = reason ?? sandbox?.reason ?? 'sandbox_stopped'
      const words = sandbox?.reasonMessage ?? (status === 'stopped' ? 'it was stopped' : `it is in error (${code})`)
      await this.#ledger.write((draft) => {
        if (draft.progress.session.sandboxId !== sandboxId) return
        draft.dropAgent()
        draft.fail(code, `The sandbox of the session is lost: ${words}.`)
      })
    } catch (error) {
      // It is not told: the next step does it.
      this.#lostId = undefined
      this.#life.poke()
      throw error
    }
  }

  /** Why the sandbox is in error, when it is: it may have ended while a call was at work on it. */
  async fault(): Promise<string | undefined> {
    const { sandboxId } = (await this.#ledger.read()).session
    const sandbox = await findSandbox(this.#deps.sandboxes, this.#orgId, sandboxId)
    return sandbox?.status === 'error' ? sandbox.reason : undefined
  }
}

/** A repeat is harmless. */
export async function deleteSandbox(
  sandboxes: SandboxService,
  session: { orgId: string; sandboxId: string },
): Promise<void> {
  try {
    await sandboxes.delete(session.orgId, session.sandboxId)
  } catch (error) {
    if (!isServiceError(error, 'not_found')) throw error
  }
}
