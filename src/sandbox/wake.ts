import { isServiceError } from '../errors.ts'
import { defined } from '../lib/defined.ts'
import { type BootContext, type Prepare, reasonOf } from './boot.ts'
import { memoryNotRestorable, refusedMemory } from './cold-wake.ts'
import type { Ends } from './ends.ts'
import type { Lifecycle } from './lifecycle.ts'
import { type Sandbox, notUsable, runningNow, specOf } from './sandbox.ts'
import { deletedDuringBoot, withinWakeDeadline } from './transition-queue.ts'

/** Starts the machine of a hibernated sandbox. */
export type MachineStart = (sandbox: Sandbox, signal: AbortSignal) => Promise<void>

interface WakesContext extends BootContext {
  lifecycle: Pick<Lifecycle, 'read' | 'set' | 'change' | 'changeAlive' | 'clocks' | 'maxAges'>
  /** Is called before a wake; its result runs in the woken sandbox. */
  prepareWake: (sandbox: Sandbox) => Promise<Prepare>
  ends: Ends
}

/** Wakes hibernated sandboxes. Concurrent operations share one wake, its failure included. */
export class Wakes {
  readonly #context: WakesContext
  readonly #underWay = new Map<string, Promise<Sandbox>>()

  constructor(context: WakesContext) {
    this.#context = context
  }

  /** The sandbox once it runs. Throws `sandbox_stopped`, `conflict` (in `error`), `unavailable` (the wake takes too long). */
  async ensureRunning(sandboxId: string, orgId?: string): Promise<Sandbox> {
    const { lifecycle, limits, transitions } = this.#context
    const underWay = this.#underWay.get(sandboxId)
    if (!underWay) await withinWakeDeadline(transitions.settled(sandboxId), limits.wakeWaitMs)
    const sandbox = await lifecycle.read(sandboxId, orgId)
    if (sandbox.status !== 'running' && sandbox.status !== 'hibernated') throw notUsable(sandbox)
    // A wake may wait for the end of a hibernation, until which the record says that the sandbox runs.
    if (!underWay && sandbox.status === 'running') return sandbox
    return await withinWakeDeadline(underWay ?? this.wake(sandboxId), limits.wakeWaitMs)
  }

  /** Joins a wake under way. With a `start` of its own a call waits for the end of that wake first. */
  async wake(
    sandboxId: string,
    { timeoutSeconds, start }: { timeoutSeconds?: number; start?: MachineStart } = {},
  ): Promise<Sandbox> {
    const underWay = this.#underWay.get(sandboxId)
    if (underWay !== undefined && start !== undefined) {
      await underWay.catch(() => undefined)
      return await this.wake(sandboxId, defined({ timeoutSeconds, start }))
    }
    const wake = underWay ?? this.#begin(sandboxId, start).finally(() => this.#underWay.delete(sandboxId))
    this.#underWay.set(sandboxId, wake)
    const sandbox = await wake
    if (timeoutSeconds === undefined) return sandbox
    return await this.#context.lifecycle.changeAlive(sandboxId, { timeoutSeconds })
  }

  async #begin(sandboxId: string, start?: MachineStart): Promise<Sandbox> {
    const { transitions, boots } = this.#context
    return await transitions.run(sandboxId, () =>
      boots.run(sandboxId, (signal) => this.#wake(sandboxId, start, signal)),
    )
  }

  async #wake(sandboxId: string, given: MachineStart | undefined, signal: AbortSignal): Promise<Sandbox> {
    const { driver, guest, lifecycle, prepareWake, quota, starts, ends } = this.#context
    const sandbox = await lifecycle.read(sandboxId)
    if (sandbox.status === 'running') {
      lifecycle.clocks.touch(sandboxId)
      return sandbox
    }
    if (sandbox.status !== 'hibernated') throw notUsable(sandbox)
    this.#context.assertActive?.(sandbox.orgId)
    if (given === undefined) this.#assertNotRefused(sandbox)
    const start = given ?? (() => driver.wake(specOf(sandbox), signal))
    return await quota.claimWake(sandbox, async () => {
      const prepare = await prepareWake(sandbox)
      const { orgId, memoryMb } = sandbox
      await starts
        .run({ orgId, memoryMb, signal }, () => start(sandbox, signal))
        .catch(async (error: unknown) => {
          if (!isServiceError(error, 'memory_not_restorable')) throw error
          await lifecycle.change(sandboxId, refusedMemory(error))
          throw memoryNotRestorable(sandboxId, error.message, error)
        })
      ends.forget(sandboxId)
      try {
        await this.#context.trust?.(guest(sandboxId, sandbox.orgId), sandbox)
        await prepare(guest(sandboxId, sandbox.orgId), sandbox, signal)
        // It may have been suspended meanwhile.
        this.#context.assertActive?.(sandbox.orgId)
      } catch (error) {
        // After an abort a deletion waits for this transition and removes the machine, or the next server hibernates it.
        if (!signal.aborted) await this.#hibernateAgain(sandbox, error, signal)
        throw error
      }
      const running = await lifecycle.set(sandboxId, runningNow())
      if (!running) throw deletedDuringBoot(sandboxId)
      return running
    })
  }

  /** Throws for memory that CRIU has refused: without a request of the client it is not tried again, as it would fail for ever. */
  #assertNotRefused({ id, reason, reasonMessage }: Sandbox): void {
    if (reason !== 'memory_not_restorable' || !this.#context.driver.hasMemory(id)) return
    throw memoryNotRestorable(id, reasonMessage ?? 'its memory cannot be restored')
  }

  /** Hibernates a woken sandbox that could not be prepared. When that fails and it runs on, the record says so and why. */
  async #hibernateAgain({ id, orgId }: Sandbox, error: unknown, signal: AbortSignal): Promise<void> {
    const { driver, lifecycle, transitions, ends, log } = this.#context
    try {
      await transitions.permits.use(() => driver.hibernate(id), { key: orgId, signal })
    } catch (cause) {
      if (signal.aborted) return
      log.warn({ err: cause, sandboxId: id }, 'a woken sandbox could not be hibernated again')
      const why = reasonOf(error, 'the sandbox could not be prepared')
      if (await ends.answers(id)) await lifecycle.set(id, { ...runningNow(), ...why })
      else await lifecycle.change(id, why)
    }
  }
}
