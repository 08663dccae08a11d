import { actingAsServer } from '../events/index.ts'
import { isServiceError } from '../errors.ts'
import { reasonOf } from './boot.ts'
import type { Lifecycle, LifecycleContext } from './lifecycle.ts'
import { RestartedOnDiskError, type SandboxExit } from './ports/runtime-driver.ts'
import type { Sandbox, SandboxChange, SandboxStatus } from './sandbox.ts'
import type { TransitionQueue } from './transition-queue.ts'
import { untilRecorded } from './until-recorded.ts'

interface EndsContext extends Pick<LifecycleContext, 'guest' | 'log'> {
  lifecycle: Pick<Lifecycle, 'read' | 'set' | 'change'>
  transitions: TransitionQueue
}

const answerWaitMs = 5000

/**
 * Records the ends of sandboxes that no client asked for: processes ended by themselves, or in a failed transition. Only the guest knows
 * whether a sandbox still runs.
 *
 *     (runs) ── exit ──► ended ── recorded as `error`, or started again ──► (forgotten)
 */
export class Ends {
  readonly #context: EndsContext
  /** Sandboxes whose exit was reported, and neither recorded nor overtaken by a new start. */
  readonly #ended = new Set<string>()

  constructor(context: EndsContext) {
    this.#context = context
  }

  has(sandboxId: string): boolean {
    return this.#ended.has(sandboxId)
  }

  /** To be called when the sandbox has started again. */
  forget(sandboxId: string): void {
    this.#ended.delete(sandboxId)
  }

  /** Takes the report of a driver. */
  report(exit: SandboxExit): void {
    this.#ended.add(exit.sandboxId)
    void actingAsServer('exit', () => this.#record(exit))
  }

  /** Whether its guest answers within a few seconds; for the holder of its lock. */
  async answers(sandboxId: string): Promise<boolean> {
    const hello = this.#context.guest(sandboxId).hello(AbortSignal.timeout(answerWaitMs))
    return await hello.then(
      () => true,
      () => false,
    )
  }

  /** Records the outcome of a failed replacement or hibernation. */
  async settleAfter(sandbox: Sandbox, error: unknown): Promise<void> {
    if (sandbox.status !== 'running') return
    const { lifecycle, log } = this.#context
    if (await this.answers(sandbox.id)) {
      if (!(error instanceof RestartedOnDiskError)) return
      const change = { startedAt: new Date(), reason: 'runtime_failed', reasonMessage: error.message } as const
      await lifecycle.change(sandbox.id, change)
      return
    }
    log.warn({ err: error, sandboxId: sandbox.id }, 'a sandbox does not run after a failure, and hibernates')
    const { reasonMessage } = reasonOf(error, 'its processes ended in a failure of the runtime')
    await this.setHibernated(sandbox.id, { reason: 'runtime_failed', reasonMessage })
  }

  /**
   * Records the hibernation of a sandbox whose machine hibernates already. Nobody could wake a sandbox whose record says that it runs, so the
   * change is repeated until the database takes it.
   */
  async setHibernated(sandboxId: string, why: Pick<SandboxChange, 'reason' | 'reasonMessage'>): Promise<void> {
    const change = { status: 'hibernated', ...why } as const
    await this.#context.lifecycle.set(sandboxId, change).catch((error: unknown) => {
      if (isServiceError(error, 'unavailable')) void this.#setLater(sandboxId, change)
      throw error
    })
  }

  async #setLater(sandboxId: string, change: SandboxChange & { status: SandboxStatus }): Promise<void> {
    const { lifecycle, transitions, log } = this.#context
    const record = async () => {
      const { status } = await lifecycle.read(sandboxId)
      if (status === 'running' && !(await this.answers(sandboxId))) await lifecycle.set(sandboxId, change, ['running'])
    }
    const { closing } = transitions
    await untilRecorded(() => transitions.run(sandboxId, record), closing).catch((error: unknown) => {
      if (!closing.aborted) log.error({ err: error, sandboxId }, 'a hibernation could not be recorded')
    })
  }

  async #record(exit: SandboxExit): Promise<void> {
    const { lifecycle, transitions, log } = this.#context
    try {
      const record = async () => {
        // A restart or a restore that ran before this transition may have started the sandbox again.
        if (!(await this.answers(exit.sandboxId))) {
          const change = { status: 'error', reason: exit.reason, reasonMessage: exit.message } as const
          await lifecycle.set(exit.sandboxId, change, ['running'])
          log.warn(exit, 'a sandbox ended by itself')
        }
        this.#ended.delete(exit.sandboxId)
      }
      await untilRecorded(() => transitions.run(exit.sandboxId, record), transitions.closing)
    } catch (error) {
      log.error({ err: error, sandboxId: exit.sandboxId }, 'the end of a sandbox could not be recorded')
    }
  }
}
