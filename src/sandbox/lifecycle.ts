import { ServiceError, isServiceError } from '../errors.ts'
import { actingAsServer, type EventBus } from '../events/index.ts'
import type { Creation, CreationNote } from '../lib/creation.ts'
import { defined } from '../lib/defined.ts'
import type { Log } from '../lib/log.ts'
import { alignMachine } from './alignment.ts'
import { type BootOptions, type Prepare, bootSandbox, hookReason, reasonOf } from './boot.ts'
import { memoryNotRestorable, refusedMemory } from './cold-wake.ts'
import { ActivityRecorder, IdleClocks } from './idle.ts'
import type { DiskQuota } from './disk-quota.ts'
import type { Guest } from './ports/guest.ts'
import { type RuntimeDriver, type SandboxExit, type SandboxSpec, RestartedOnDiskError } from './ports/runtime-driver.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'
import { clientsActiveAtMs } from './process.ts'
import { RunningSandboxQuota, type SandboxLimits } from './quota.ts'
import {
  type Sandbox,
  type SandboxChange,
  type SandboxStatus,
  type Sizes,
  assertAlive,
  notUsable,
  specOf,
  startDefaults,
  statusesBefore,
} from './sandbox.ts'
import { UsageSampler } from './usage-sampler.ts'
import { WarmPool } from './warm-pool.ts'
import { InFlightBoots, TransitionQueue, deletedDuringBoot, withinWakeDeadline } from './transition-queue.ts'
import { untilRecorded } from './until-recorded.ts'

export interface LifecycleContext {
  store: SandboxStore
  driver: RuntimeDriver
  /** Its connections, and what is collected from it, are charged to the organisation; without one to nobody. */
  guest: (sandboxId: string, orgId?: string) => Guest
  bus: EventBus
  log: Log
  limits: SandboxLimits
  disk: DiskQuota
  /** Most sandboxes that are started before anyone creates them. Default: none. */
  warmSandboxesMax?: number
}

/** Starts the machine of a hibernated sandbox. */
export type MachineStart = (sandbox: Sandbox, signal: AbortSignal) => Promise<void>

const answerWaitMs = 5000
const idleRetryMs = 60_000

/**
 * Carries out the transitions of sandboxes. A deletion changes the row before the machine; a create or wake changes it after the
 * machine. A crash in between leaves a row that says less than what runs, and the next reconciliation cleans up.
 *
 * Transitions of one sandbox run one after another (`TransitionQueue`). Plain operations wait for the one under way and delay none.
 * `set` writes states and announces their events; `boot.ts` and `recovery.ts` alone write others, of records that nobody uses.
 */
export class Lifecycle {
  readonly clocks: IdleClocks
  readonly warm: WarmPool
  readonly usage: UsageSampler
  readonly #context: LifecycleContext
  readonly #quota: RunningSandboxQuota
  readonly #transitions: TransitionQueue
  readonly #boots = new InFlightBoots()
  /** Wakes under way. Operations share one, its failure included. */
  readonly #wakes = new Map<string, Promise<Sandbox>>()
  /** Sandboxes whose clock has run out and that wait for a permit to hibernate. */
  readonly #idling = new Set<string>()
  /** Sandboxes whose exit was reported, and neither recorded nor overtaken by a new start. */
  readonly #ended = new Set<string>()
  readonly #activity: ActivityRecorder
  readonly #wakePreparation: (sandbox: Sandbox) => Promise<Prepare>

  /** `wakePreparation` is called before a wake; its result runs in the woken sandbox. */
  constructor(context: LifecycleContext, wakePreparation: (sandbox: Sandbox) => Promise<Prepare>) {
    this.#context = context
    this.#activity = new ActivityRecorder(context.store, context.log)
    this.#quota = new RunningSandboxQuota(context.store, context.limits.runningSandboxesMax)
    this.#transitions = new TransitionQueue(context.limits.startsAtOnce)
    this.#wakePreparation = wakePreparation
    this.clocks = new IdleClocks((sandboxId) => void actingAsServer('idle_timeout', () => this.#idle(sandboxId)))
    this.usage = new UsageSampler({ driver: context.driver, running: () => this.clocks.ids(), log: context.log })
    this.warm = new WarmPool({
      driver: context.driver,
      size: context.warmSandboxesMax ?? 0,
      first: startDefaults,
      isBusy: () => this.#transitions.permits.isUsed,
      log: context.log,
    })
    context.driver.onExit((exit) => {
      if (this.warm.lost(exit.sandboxId)) return
      this.#ended.add(exit.sandboxId)
      void actingAsServer('exit', () => this.#exited(exit))
    })
  }

  async get(orgId: string, sandboxId: string): Promise<Sandbox> {
    return await this.known(sandboxId, orgId)
  }

  /** The sandbox that an earlier run of the request has made, as it is now. Throws `not_found` when it is gone. */
  async made(orgId: string, creation: Creation | undefined): Promise<Sandbox | undefined> {
    const id = creation?.id('sb-')
    return id !== undefined && creation?.made.includes(id) ? await this.known(id, orgId) : undefined
  }

  async create(sandbox: Sandbox, options: BootOptions): Promise<Sandbox> {
    const context = { ...this.#context, quota: this.#quota, boots: this.#boots, transitions: this.#transitions }
    return await bootSandbox({ ...context, warm: this.warm, lifecycle: this }, sandbox, options)
  }

  /** Runs an operation on a running sandbox, waking it first, and counts as activity until it ends. */
  async use<Result>(
    orgId: string,
    sandboxId: string,
    work: (guest: Guest, sandbox: Sandbox) => Promise<Result>,
  ): Promise<Result> {
    // A call of another organisation must not keep it alive.
    await this.known(sandboxId, orgId)
    const release = this.keepAlive(sandboxId)
    try {
      const sandbox = await this.awake(sandboxId, orgId)
      return await work(this.#context.guest(sandboxId, sandbox.orgId), sandbox)
    } catch (error) {
      throw await this.#cause(sandboxId, error)
    } finally {
      release()
    }
  }

  /** The sandbox once it runs. Throws `sandbox_stopped`, `conflict` (in `error`), `unavailable` (the wake takes too long). */
  async awake(sandboxId: string, orgId?: string): Promise<Sandbox> {
    const { wakeWaitMs } = this.#context.limits
    const underWay = this.#wakes.get(sandboxId)
    if (!underWay) await withinWakeDeadline(this.#transitions.settled(sandboxId), wakeWaitMs)
    const sandbox = await this.known(sandboxId, orgId)
    if (sandbox.status !== 'running' && sandbox.status !== 'hibernated') throw notUsable(sandbox)
    // A wake may wait for the end of a hibernation, until which the record says that the sandbox runs.
    if (underWay) return await withinWakeDeadline(underWay, wakeWaitMs)
    return sandbox.status === 'running' ? sandbox : await withinWakeDeadline(this.wake(sandboxId), wakeWaitMs)
  }

  /** For reads that neither wake a sandbox nor count as activity. */
  async guestIfRunning(orgId: string, sandboxId: string): Promise<Guest | undefined> {
    const sandbox = await this.get(orgId, sandboxId)
    return sandbox.status === 'running' ? this.#context.guest(sandboxId, orgId) : undefined
  }

  /** Takes a keep-alive lease: the sandbox does not idle until the result is called. A repeat of that call is harmless. */
  keepAlive(sandboxId: string): () => void {
    if (this.clocks.activeAt(sandboxId)) this.#activity.record(sandboxId)
    return this.clocks.keepAlive(sandboxId)
  }

  /** Joins a wake that is under way; with a `start` of its own it waits for that to end. */
  async wake(
    sandboxId: string,
    { timeoutSeconds, start }: { timeoutSeconds?: number; start?: MachineStart } = {},
  ): Promise<Sandbox> {
    const underWay = this.#wakes.get(sandboxId)
    if (underWay !== undefined && start !== undefined) {
      await underWay.catch(() => undefined)
      return await this.wake(sandboxId, defined({ timeoutSeconds, start }))
    }
    const wake = underWay ?? this.#wake(sandboxId, start).finally(() => this.#wakes.delete(sandboxId))
    this.#wakes.set(sandboxId, wake)
    const sandbox = await wake
    if (timeoutSeconds === undefined) return sandbox
    return (await this.change(sandboxId, { timeoutSeconds })) ?? sandbox
  }

  async #wake(sandboxId: string, given?: MachineStart): Promise<Sandbox> {
    const wake = async (signal: AbortSignal) => {
      const sandbox = await this.known(sandboxId)
      if (sandbox.status === 'running') {
        this.clocks.touch(sandboxId)
        return sandbox
      }
      if (sandbox.status !== 'hibernated') throw notUsable(sandbox)
      if (given === undefined) this.#assertNotRefused(sandbox)
      const start = given ?? (() => this.#context.driver.wake(specOf(sandbox), signal))
      return await this.#quota.claimWake(sandbox.orgId, async () => {
        const prepare = await this.#wakePreparation(sandbox)
        const machineWake = () => this.warm.withRoom(() => start(sandbox, signal))
        await this.#transitions.permits
          .use(machineWake, { key: sandbox.orgId, signal })
          .catch(async (error: unknown) => {
            if (!isServiceError(error, 'memory_not_restorable')) throw error
            await this.change(sandboxId, refusedMemory(error))
            throw memoryNotRestorable(sandboxId, error.message, error)
          })
        this.#ended.delete(sandboxId)
        try {
          await prepare(this.#context.guest(sandboxId, sandbox.orgId), sandbox, signal)
        } catch (error) {
          // After an abort a deletion waits for this transition and removes the machine, or the next server hibernates it.
          if (!signal.aborted) await this.#hibernateAgain(sandbox, error, signal)
          throw error
        }
        const running = await this.set(sandboxId, runningNow())
        if (!running) throw deletedDuringBoot(sandboxId)
        return running
      })
    }
    return await this.#transitions.run(sandboxId, () => this.#boots.run(sandboxId, wake))
  }

  /** Memory that CRIU has refused is not tried again unasked: it would fail for ever. */
  #assertNotRefused({ id, reason, reasonMessage }: Sandbox): void {
    if (reason !== 'memory_not_restorable' || !this.#context.driver.hasMemory(id)) return
    throw memoryNotRestorable(id, reasonMessage ?? 'its memory cannot be restored')
  }

  /** With `ifIdle` it returns undefined when the sandbox was used during the wait for a permit, or still is. */
  async hibernate(sandboxId: string, ifIdle = false): Promise<{ sizeBytes: number } | undefined> {
    return await this.#transitions.runWithPermit(await this.known(sandboxId), async () => {
      if (ifIdle && !(this.clocks.isOver(sandboxId) && (await this.#isIdle(sandboxId)))) return undefined
      const sandbox = await this.known(sandboxId)
      // A repeat changes nothing and reports the size again.
      if (sandbox.status === 'hibernated') return await this.#context.driver.hibernate(sandboxId)
      if (sandbox.status !== 'running') throw notUsable(sandbox)
      const saved = await this.#context.driver.hibernate(sandboxId).catch(async (error: unknown) => {
        // A sandbox that ended by itself is reported as an exit, and the record must say that.
        const hasEnded = this.#ended.has(sandboxId) || isServiceError(error, 'unavailable')
        if (!hasEnded) await this.#settleAfter(sandbox, error)
        throw error
      })
      // Its memory is lost, and the record must say so.
      if (this.#ended.has(sandboxId)) throw new ServiceError('unavailable', `sandbox ${sandboxId} has just ended`)
      await this.#setHibernated(sandboxId, { reason: undefined, reasonMessage: undefined })
      return saved
    })
  }

  /**
   * Replaces the processes of a sandbox (restart, restore) and leaves it running. After a failure the record is `hibernated` with the
   * reason, or has the reason while the sandbox runs on. Its clock stands still meanwhile, because its guest cannot answer.
   */
  async replace(sandboxId: string, work: (spec: SandboxSpec) => Promise<void>): Promise<Sandbox> {
    const release = this.keepAlive(sandboxId)
    const transition = async () => {
      const sandbox = await this.#usable(sandboxId)
      const replaced = async () => {
        try {
          await this.warm.withRoom(() => work(specOf(sandbox)))
          this.#ended.delete(sandboxId)
        } catch (error) {
          await this.#settleAfter(sandbox, error)
          throw error
        }
        const change = { ...runningNow(), ...hookReason(this.#context.driver, sandboxId) }
        const running = await this.set(sandboxId, change, ['running', 'hibernated'])
        if (!running) throw new ServiceError('sandbox_stopped', `sandbox ${sandboxId} is stopped`)
        return running
      }
      return sandbox.status === 'hibernated' ? await this.#quota.claimWake(sandbox.orgId, replaced) : await replaced()
    }
    try {
      return await this.#transitions.runWithPermit(await this.known(sandboxId), transition)
    } finally {
      release()
    }
  }

  /**
   * Changes the sizes of a sandbox: at once when it runs, else from its next wake on. `decide` gets the sandbox, kept from transitions;
   * undefined changes nothing. It is no activity.
   */
  async resize(
    sandboxId: string,
    decide: (sandbox: Sandbox) => Promise<(Sizes & Pick<SandboxChange, 'isAutoscaled'>) | undefined>,
  ): Promise<Sandbox> {
    return await this.#transitions.withoutTransitions(sandboxId, async () => {
      const sandbox = await this.#usable(sandboxId)
      const change = await decide(sandbox)
      if (change === undefined) return sandbox
      const record = async () => (await this.change(sandboxId, change)) ?? sandbox
      if (sandbox.status !== 'running') return await record()
      const { cpuCount, memoryMb } = change
      try {
        await this.#context.driver.resize({ ...specOf(sandbox), cpuCount, memoryMb })
        return await record()
      } catch (error) {
        // A part of the change may have been made, and its commit may have happened.
        await this.#align(sandboxId)
        throw error
      }
    })
  }

  /** Stops it for good: first the record, so that no call uses it any more, then a boot under way, then the machine. */
  async delete(sandboxId: string): Promise<void> {
    await this.set(sandboxId, { status: 'stopped', stoppedAt: new Date() })
    this.#boots.abort(sandboxId)
    const { driver, store } = this.#context
    await this.#transitions.run(sandboxId, async () => {
      await driver.delete(sandboxId)
      // Not before: nothing may write a volume that others can have.
      if ((await this.known(sandboxId)).volumes.length > 0) await store.detachVolumes(sandboxId)
    })
  }

  /** Runs driver work on a running sandbox and keeps transitions out: a checkpoint. */
  async withoutTransitions<Result>(sandboxId: string, work: () => Promise<Result>): Promise<Result> {
    return await this.#transitions.withoutTransitions(sandboxId, async () => {
      const sandbox = await this.known(sandboxId)
      if (sandbox.status !== 'running') throw notUsable(sandbox)
      return await this.#transitions.permits.use(work, { key: sandbox.orgId, signal: this.#transitions.closing })
    })
  }

  /** Changes fields of one that is not stopped by what they are: no resize and no transition comes between. */
  async changeAlone(sandboxId: string, decide: (sandbox: Sandbox) => Omit<SandboxChange, 'status'>): Promise<Sandbox> {
    return await this.#transitions.withoutTransitions(sandboxId, async () => {
      const sandbox = await this.known(sandboxId)
      assertAlive(sandbox)
      return (await this.change(sandboxId, decide(sandbox))) ?? sandbox
    })
  }

  /** Changes fields other than the state. */
  async change(sandboxId: string, change: Omit<SandboxChange, 'status'>): Promise<Sandbox | undefined> {
    const sandbox = await this.#context.store.updateSandbox(sandboxId, change)
    if (sandbox?.status === 'running' && change.timeoutSeconds !== undefined) {
      this.clocks.start(sandboxId, sandbox.timeoutSeconds)
    }
    return sandbox
  }

  /** Writes a new state and announces it; undefined when the current state has no transition to it. */
  async set(
    sandboxId: string,
    change: SandboxChange & { status: SandboxStatus },
    from: readonly SandboxStatus[] = statusesBefore(change.status),
    options?: { creationNote?: CreationNote | undefined; expected?: Sandbox | undefined },
  ): Promise<Sandbox | undefined> {
    const sandbox = await this.#context.store.updateSandbox(sandboxId, change, from, options)
    if (!sandbox) return undefined
    if (change.activeAt !== undefined) this.#activity.written(sandboxId, change.activeAt)
    if (sandbox.status === 'running') this.clocks.start(sandboxId, sandbox.timeoutSeconds)
    else {
      this.clocks.stop(sandboxId)
      this.#activity.forget(sandboxId)
    }
    if (sandbox.status === 'stopped') this.usage.forget(sandboxId)
    const { status, reason } = sandbox
    this.#context.bus.publish({ type: 'sandbox_changed', sandboxId, status, ...defined({ reason }) })
    return sandbox
  }

  /** Whether its guest answers within a few seconds; for the holder of its lock. */
  async answers(sandboxId: string): Promise<boolean> {
    const hello = this.#context.guest(sandboxId).hello(AbortSignal.timeout(answerWaitMs))
    return await hello.then(
      () => true,
      () => false,
    )
  }

  /** Returns when all transitions under way have ended and are recorded. Those that wait for a permit fail. */
  async close(): Promise<void> {
    this.usage.close()
    this.clocks.stopAll()
    this.#boots.abortAll()
    await this.#transitions.close()
    await this.warm.close()
  }

  /** Finds the cause of `unavailable`: the sandbox may have stopped in the middle of the operation. */
  async #cause(sandboxId: string, error: unknown): Promise<unknown> {
    if (!isServiceError(error, 'unavailable')) return error
    const sandbox = await this.#context.store.sandbox(sandboxId)
    return sandbox?.status === 'stopped' || sandbox?.status === 'error' ? notUsable(sandbox) : error
  }

  /** Of any organisation without one. Throws `not_found`. */
  async known(sandboxId: string, orgId?: string): Promise<Sandbox> {
    const sandbox = await this.#context.store.sandbox(sandboxId, orgId)
    if (!sandbox) throw new ServiceError('not_found', `no sandbox ${sandboxId}`)
    return sandbox
  }

  /** Makes the machine agree with the record after a failed change; for the holder of its lock. */
  async #align(sandboxId: string): Promise<void> {
    const { store, log } = this.#context
    const sandbox = await store.sandbox(sandboxId).catch((error: unknown) => {
      log.warn({ err: error, sandboxId }, 'a sandbox is brought to its record by the next start')
    })
    if (sandbox?.status === 'running') await alignMachine({ ...this.#context, lifecycle: this }, sandbox)
  }

  /** A sandbox that runs or hibernates; for the holder of its lock. */
  async #usable(sandboxId: string): Promise<Sandbox> {
    const sandbox = await this.known(sandboxId)
    if (sandbox.status !== 'running' && sandbox.status !== 'hibernated') throw notUsable(sandbox)
    return sandbox
  }

  /** Records the outcome of a failed replacement or hibernation. Only the guest knows whether the sandbox still runs. */
  async #settleAfter(sandbox: Sandbox, error: unknown): Promise<void> {
    if (sandbox.status !== 'running') return
    if (await this.answers(sandbox.id)) {
      if (!(error instanceof RestartedOnDiskError)) return
      const change = { startedAt: new Date(), reason: 'runtime_failed', reasonMessage: error.message } as const
      await this.change(sandbox.id, change)
      return
    }
    this.#context.log.warn(
      { err: error, sandboxId: sandbox.id },
      'a sandbox does not run after a failure, and hibernates',
    )
    const { reasonMessage } = reasonOf(error, 'its processes ended in a failure of the runtime')
    await this.#setHibernated(sandbox.id, { reason: 'runtime_failed', reasonMessage })
  }

  /**
   * Records that a sandbox hibernates whose machine does so already. With a record that says it runs nobody could wake it, so a database
   * that does not answer is told later.
   */
  async #setHibernated(sandboxId: string, why: Pick<SandboxChange, 'reason' | 'reasonMessage'>): Promise<void> {
    const change = { status: 'hibernated', ...why } as const
    await this.set(sandboxId, change).catch((error: unknown) => {
      if (isServiceError(error, 'unavailable')) void this.#setLater(sandboxId, change)
      throw error
    })
  }

  async #setLater(sandboxId: string, change: SandboxChange & { status: SandboxStatus }): Promise<void> {
    const record = async () => {
      const { status } = await this.known(sandboxId)
      if (status === 'running' && !(await this.answers(sandboxId))) await this.set(sandboxId, change, ['running'])
    }
    const { closing } = this.#transitions
    await untilRecorded(() => this.#transitions.run(sandboxId, record), closing).catch((error: unknown) => {
      if (!closing.aborted) this.#context.log.error({ err: error, sandboxId }, 'a hibernation could not be recorded')
    })
  }

  /** Hibernates a woken sandbox that could not be prepared. When that fails and it runs on, the record says so and why. */
  async #hibernateAgain({ id, orgId }: Sandbox, error: unknown, signal: AbortSignal): Promise<void> {
    try {
      await this.#transitions.permits.use(() => this.#context.driver.hibernate(id), { key: orgId, signal })
    } catch (cause) {
      if (signal.aborted) return
      this.#context.log.warn({ err: cause, sandboxId: id }, 'a woken sandbox could not be hibernated again')
      const why = reasonOf(error, 'the sandbox could not be prepared')
      if (await this.answers(id)) await this.set(id, { ...runningNow(), ...why })
      else await this.change(id, why)
    }
  }

  async #idle(sandboxId: string): Promise<void> {
    // The clock restarted and ran out again during the wait for a permit; the waiting call checks it once more.
    if (this.#idling.has(sandboxId)) return
    this.#idling.add(sandboxId)
    const { log } = this.#context
    try {
      if (await this.#isIdle(sandboxId)) await this.hibernate(sandboxId, true)
    } catch (error) {
      // Stopped, or used again: the guest may have been called in the middle of a restart.
      if (!this.clocks.isOver(sandboxId)) return
      log.warn({ err: error, sandboxId }, 'an idle sandbox could not be hibernated')
      const reasonMessage = error instanceof Error ? error.message : String(error)
      this.clocks.postpone(sandboxId, idleRetryMs)
      const change = { reason: 'runtime_failed', reasonMessage } as const
      await this.#context.store.updateSandbox(sandboxId, change, ['running']).catch(() => undefined)
    } finally {
      this.#idling.delete(sandboxId)
    }
  }

  /** Whether a sandbox whose clock has run out is unused. A client process makes the clock run on. */
  async #isIdle(sandboxId: string): Promise<boolean> {
    const { orgId } = await this.known(sandboxId)
    const activeAtMs = clientsActiveAtMs(await this.#context.guest(sandboxId, orgId).processes())
    if (activeAtMs === Infinity) this.clocks.touch(sandboxId)
    else this.clocks.touchAt(sandboxId, Math.min(activeAtMs, Date.now()))
    return this.clocks.isOver(sandboxId)
  }

  async #exited(exit: SandboxExit): Promise<void> {
    const { log } = this.#context
    try {
      const record = async () => {
        // A restart or a restore that ran before this transition may have started the sandbox again.
        if (!(await this.answers(exit.sandboxId))) {
          const change = { status: 'error', reason: exit.reason, reasonMessage: exit.message } as const
          await this.set(exit.sandboxId, change, ['running'])
          log.warn(exit, 'a sandbox ended by itself')
        }
        this.#ended.delete(exit.sandboxId)
      }
      await untilRecorded(() => this.#transitions.run(exit.sandboxId, record), this.#transitions.closing)
    } catch (error) {
      log.error({ err: error, sandboxId: exit.sandboxId }, 'the end of a sandbox could not be recorded')
    }
  }
}

/** The change of a record whose sandbox has just started. */
export function runningNow() {
  return { status: 'running', startedAt: new Date(), reason: undefined, reasonMessage: undefined } as const
}
