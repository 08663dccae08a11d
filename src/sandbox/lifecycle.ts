import { availableParallelism } from 'node:os'
import { ServiceError, isServiceError } from '../errors.ts'
import { actingAsServer, type EventBus } from '../events/index.ts'
import { ActiveKeys } from '../lib/async/active-keys.ts'
import type { Creation } from '../lib/creation.ts'
import { defined } from '../lib/defined.ts'
import type { Log } from '../lib/log.ts'
import { alignMachine } from './alignment.ts'
import { type BootContext, type BootOptions, type Prepare, bootSandbox, hookReason } from './boot.ts'
import { Ends } from './ends.ts'
import { ActivityRecorder, IdleClocks } from './idle.ts'
import type { DiskQuota } from './disk-quota.ts'
import { MaxAges } from './max-age.ts'
import type { Guest } from './ports/guest.ts'
import type { RuntimeDriver, SandboxSpec, SandboxUsage } from './ports/runtime-driver.ts'
import type { SandboxStore, UpdateOptions } from './ports/sandbox-store.ts'
import { clientsActiveAtMs } from './process.ts'
import { quotaOfLimits, RunningSandboxQuota, type SandboxQuota, type SandboxLimits } from './quota.ts'
import {
  type Sandbox,
  type SandboxChange,
  type SandboxStatus,
  type Sizes,
  aliveStatuses,
  assertAlive,
  endedBy,
  notUsable,
  runningNow,
  specOf,
  startDefaults,
  statusesBefore,
} from './sandbox.ts'
import { Starts } from './starts.ts'
import { UsageSampler } from './usage-sampler.ts'
import { WarmPool } from './warm-pool.ts'
import { InFlightBoots, TransitionQueue } from './transition-queue.ts'
import { Wakes } from './wake.ts'

export interface LifecycleContext {
  store: SandboxStore
  driver: RuntimeDriver
  /** The guest of a sandbox. Its connections and collected answers are charged to the organisation; without one to nobody. */
  guest: (sandboxId: string, orgId?: string) => Guest
  bus: EventBus
  log: Log
  limits: SandboxLimits
  disk: DiskQuota
  /** Throws for an organisation of which nothing may start or run. Default: none. */
  assertActive?: (orgId: string) => void
  /** What an organisation may have. Default: what the limits say. */
  quotaOf?: (orgId: string) => SandboxQuota
  /** Counts what machines use. Default: nobody does. */
  meter?: UsageMeter
  /** Most warm sandboxes. Default: none. */
  warmSandboxesMax?: number
  /** The weight of an organisation whose starts wait for memory of the host. Default: all weigh the same. */
  shareOf?: (orgId: string) => { weight: number }
  /** Makes programs of a started sandbox trust what ends TLS for it. Default: nothing does. */
  trust?: (guest: Guest, sandbox: Sandbox) => Promise<void>
  /** Of the host, in bytes. Default: that of this machine. */
  freeMemory?: () => number
}

/**
 * `note`: a measurement. `noteLast`: that of a machine which is about to end, with its counters; it never throws. `closeLost`: a machine has ended
 * at a time that nobody knows.
 */
export interface UsageMeter {
  note(sandbox: Sandbox, usage: SandboxUsage): void
  noteLast(sandbox: Sandbox, usage: SandboxUsage): Promise<void>
  closeLost(sandboxId: string): Promise<void>
}

const idleRetryMs = 60_000
/** For how long an organisation counts as one that uses sandboxes. */
const activeMs = 10_000
/** Starts of one organisation at a time while another uses its sandboxes: half of the processors stay free of them. */
const startsBesideOthers = Math.max(1, Math.floor(availableParallelism() / 2))

/**
 * Carries out the transitions of sandboxes. A deletion changes the row before the machine; a create or wake changes it after the
 * machine. A crash in between leaves a row that says less than what runs, and the next reconciliation cleans up.
 *
 * Transitions of one sandbox run one after another (`TransitionQueue`). Plain operations wait for the one under way and delay none.
 * `set` writes states and announces their events; `boot.ts` and `recovery.ts` alone write others, of records that nobody uses.
 */
export class Lifecycle {
  readonly clocks: IdleClocks
  readonly wakes: Wakes
  readonly ends: Ends
  readonly warm: WarmPool
  readonly usage: UsageSampler
  readonly maxAges: MaxAges
  readonly #context: LifecycleContext
  readonly #bootContext: BootContext
  readonly #quota: RunningSandboxQuota
  readonly #starts: Starts
  readonly #transitions: TransitionQueue
  readonly #boots = new InFlightBoots()
  /** Organisations that use their sandboxes at present. */
  readonly #active = new ActiveKeys(activeMs)
  /** Sandboxes whose clock has run out and that wait to hibernate or stop. */
  readonly #idling = new Set<string>()
  readonly #activity: ActivityRecorder

  /** `prepareWake` is called before a wake; its result runs in the woken sandbox. */
  constructor(context: LifecycleContext, prepareWake: (sandbox: Sandbox) => Promise<Prepare>) {
    this.#context = context
    this.#activity = new ActivityRecorder(context.store, context.log)
    const quotaOf = context.quotaOf ?? (() => quotaOfLimits(context.limits))
    this.#quota = new RunningSandboxQuota(context.store, quotaOf)
    this.#transitions = new TransitionQueue((orgId) => quotaOf(orgId).startsAtOnce)
    this.clocks = new IdleClocks((sandboxId) => void actingAsServer('idle_timeout', () => this.#idle(sandboxId)))
    this.usage = new UsageSampler({
      driver: context.driver,
      running: () => this.clocks.listIds(),
      onMeasured: (sandboxId, usage) => void this.#meter(sandboxId, usage),
      log: context.log,
    })
    this.maxAges = new MaxAges({ ...context, end: (sandboxId) => this.#expire(sandboxId) })
    this.warm = new WarmPool({
      driver: context.driver,
      size: context.warmSandboxesMax ?? 0,
      first: startDefaults,
      isBusy: () => this.#transitions.permits.isUsed,
      log: context.log,
    })
    this.ends = new Ends({ ...context, lifecycle: this, transitions: this.#transitions })
    this.#starts = new Starts({
      permits: this.#transitions.permits,
      warm: this.warm,
      limits: context.limits,
      startsAtOnce: () => (this.#active.count > 1 ? startsBesideOthers : Infinity),
      shareOf: (orgId) => context.shareOf?.(orgId).weight ?? 1,
      ...defined({ freeMemory: context.freeMemory }),
    })
    const [quota, boots, transitions, starts] = [this.#quota, this.#boots, this.#transitions, this.#starts]
    this.#bootContext = { ...context, quota, boots, transitions, starts, warm: this.warm, lifecycle: this }
    this.wakes = new Wakes({ ...this.#bootContext, lifecycle: this, prepareWake, ends: this.ends })
    context.driver.onExit((exit) => {
      if (!this.warm.removeLost(exit.sandboxId)) this.ends.report(exit)
    })
  }

  /** The sandbox that an earlier run of the request has made, as it is now. Throws `not_found` when it is gone. */
  async findMade(orgId: string, creation: Creation | undefined): Promise<Sandbox | undefined> {
    const id = creation?.id('sb-')
    return id !== undefined && creation?.made.includes(id) ? await this.read(id, orgId) : undefined
  }

  async create(sandbox: Sandbox, options: BootOptions): Promise<Sandbox> {
    this.#active.note(sandbox.orgId)
    return await bootSandbox(this.#bootContext, sandbox, options)
  }

  /** Runs an operation on a running sandbox, waking it first, and counts as activity until it ends. */
  async use<Result>(
    orgId: string,
    sandboxId: string,
    work: (guest: Guest, sandbox: Sandbox) => Promise<Result>,
  ): Promise<Result> {
    return await this.useOn(orgId, sandboxId, async (guest, sandbox, release) => {
      const result = await work(guest, sandbox)
      release()
      return result
    })
  }

  /** Like `use`, for work whose result uses the sandbox too: counts as activity until the work fails or `release` is called. */
  async useOn<Result>(
    orgId: string,
    sandboxId: string,
    work: (guest: Guest, sandbox: Sandbox, release: () => void) => Promise<Result>,
  ): Promise<Result> {
    // A call of another organisation must not keep it alive.
    await this.read(sandboxId, orgId)
    this.#active.note(orgId)
    this.#context.assertActive?.(orgId)
    const release = this.keepAlive(sandboxId)
    try {
      const sandbox = await this.wakes.ensureRunning(sandboxId, orgId)
      return await work(this.#context.guest(sandboxId, sandbox.orgId), sandbox, release)
    } catch (error) {
      release()
      throw await this.#findCause(sandboxId, error)
    }
  }

  /** For reads that neither wake a sandbox nor count as activity. */
  async findRunningGuest(orgId: string, sandboxId: string): Promise<Guest | undefined> {
    const sandbox = await this.read(sandboxId, orgId)
    return sandbox.status === 'running' ? this.#context.guest(sandboxId, orgId) : undefined
  }

  /** Takes a keep-alive lease: the sandbox does not idle until the result is called. A repeat of that call is harmless. */
  keepAlive(sandboxId: string): () => void {
    if (this.clocks.activeAt(sandboxId)) this.#activity.record(sandboxId)
    return this.clocks.keepAlive(sandboxId)
  }

  /** With `ifIdle` it returns undefined when the sandbox was used during the wait for a permit, or still is. */
  async hibernate(
    sandboxId: string,
    { ifIdle = false }: { ifIdle?: boolean } = {},
  ): Promise<{ sizeBytes: number } | undefined> {
    return await this.#transitions.runWithPermit(await this.read(sandboxId), async () => {
      if (ifIdle && !(this.clocks.isOver(sandboxId) && (await this.#isIdle(sandboxId)))) return undefined
      const sandbox = await this.read(sandboxId)
      // A repeat changes nothing and reports the size again.
      if (sandbox.status === 'hibernated') return await this.#context.driver.hibernate(sandboxId)
      if (sandbox.status !== 'running') throw notUsable(sandbox)
      await this.measureLast(sandbox)
      const saved = await this.#context.driver.hibernate(sandboxId).catch(async (error: unknown) => {
        // A sandbox that ended by itself is reported as an exit, and the record must say that.
        const hasEnded = this.ends.has(sandboxId) || isServiceError(error, 'unavailable')
        if (!hasEnded) await this.ends.settleAfter(sandbox, error)
        throw error
      })
      // Its memory is lost, and the record must say so.
      if (this.ends.has(sandboxId)) throw new ServiceError('unavailable', `sandbox ${sandboxId} has just ended`)
      await this.ends.setHibernated(sandboxId, { reason: undefined, reasonMessage: undefined })
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
      const sandbox = await this.#readUsable(sandboxId)
      this.#context.assertActive?.(sandbox.orgId)
      const replaced = async () => {
        await this.measureLast(sandbox)
        try {
          // One that runs gives back what it has.
          const memoryMb = sandbox.status === 'running' ? 0 : sandbox.memoryMb
          await this.#starts.runPermitted({ orgId: sandbox.orgId, memoryMb }, () => work(specOf(sandbox)))
          // Its disk may be that of a time before.
          await this.#context.trust?.(this.#context.guest(sandboxId, sandbox.orgId), sandbox)
          this.ends.forget(sandboxId)
        } catch (error) {
          await this.ends.settleAfter(sandbox, error)
          throw error
        }
        const change = { ...runningNow(), ...hookReason(this.#context.driver, sandboxId) }
        const running = await this.set(sandboxId, change, ['running', 'hibernated'])
        if (!running) throw new ServiceError('sandbox_stopped', `sandbox ${sandboxId} is stopped`)
        return running
      }
      return sandbox.status === 'hibernated' ? await this.#quota.claimWake(sandbox, replaced) : await replaced()
    }
    try {
      return await this.#transitions.runWithPermit(await this.read(sandboxId), transition)
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
      const sandbox = await this.#readUsable(sandboxId)
      const change = await decide(sandbox)
      if (change === undefined) return sandbox
      const record = async () => (await this.change(sandboxId, change)) ?? sandbox
      if (sandbox.status !== 'running') return await record()
      const { cpuCount, memoryMb } = change
      try {
        return await this.#quota.claimSizes(sandbox, change, async () => {
          await this.#context.driver.resize({ ...specOf(sandbox), cpuCount, memoryMb })
          return await record()
        })
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
    await this.#abortAndRemove(sandboxId)
  }

  /** Likewise, at its maximum age. Returns once it is recorded; a later age that a client has set meanwhile keeps it. */
  async #expire(sandboxId: string): Promise<{ gone: Promise<void> }> {
    const now = new Date()
    const sandbox = await this.read(sandboxId)
    const change = { status: 'stopped', stoppedAt: now, ...endedBy(sandbox, 'expired') } as const
    const stopped = await this.set(sandboxId, change, undefined, { expiresBy: now })
    return { gone: stopped === undefined ? Promise.resolve() : this.#abortAndRemove(sandboxId) }
  }

  async #abortAndRemove(sandboxId: string): Promise<void> {
    this.#boots.abort(sandboxId)
    await this.#transitions.run(sandboxId, () => this.#removeMachine(sandboxId))
  }

  /** Before the machine of a sandbox ends or begins anew. */
  async measureLast(sandbox: Sandbox): Promise<void> {
    const { meter, driver } = this.#context
    if (meter === undefined) return
    const usage = await driver.usage(sandbox.id).catch(() => undefined)
    if (usage !== undefined) await meter.noteLast(sandbox, usage)
  }

  async #meter(sandboxId: string, usage: SandboxUsage): Promise<void> {
    const { meter, store } = this.#context
    const sandbox = meter && (await store.sandbox(sandboxId).catch(() => undefined))
    if (sandbox?.status === 'running') meter?.note(sandbox, usage)
  }

  /** Of a stopped sandbox; for the holder of its lock. */
  async #removeMachine(sandboxId: string): Promise<void> {
    await this.measureLast(await this.read(sandboxId))
    await this.#context.driver.delete(sandboxId)
    // Only after the machine is gone: it must not write a volume that others can have.
    if ((await this.read(sandboxId)).volumes.length > 0) await this.#context.store.detachVolumes(sandboxId)
  }

  /** Runs driver work on a running sandbox and keeps transitions out: a checkpoint. */
  async withoutTransitions<Result>(sandboxId: string, work: () => Promise<Result>): Promise<Result> {
    return await this.#transitions.withoutTransitions(sandboxId, async () => {
      const sandbox = await this.read(sandboxId)
      if (sandbox.status !== 'running') throw notUsable(sandbox)
      return await this.#transitions.permits.use(work, { key: sandbox.orgId, signal: this.#transitions.closing })
    })
  }

  /** Changes fields of a sandbox that is not stopped, by their present values. No resize and no transition comes between. */
  async changeAlone(sandboxId: string, decide: (sandbox: Sandbox) => Omit<SandboxChange, 'status'>): Promise<Sandbox> {
    return await this.#transitions.withoutTransitions(sandboxId, async () => {
      const sandbox = await this.read(sandboxId)
      assertAlive(sandbox)
      return await this.changeAlive(sandboxId, decide(sandbox))
    })
  }

  /** Changes fields of a sandbox that has not ended. Throws {@link notUsable} where it ends meanwhile. */
  async changeAlive(sandboxId: string, change: Omit<SandboxChange, 'status'>): Promise<Sandbox> {
    const changed = await this.change(sandboxId, change, aliveStatuses)
    if (changed !== undefined) return changed
    throw notUsable(await this.read(sandboxId))
  }

  /** Changes fields other than the state. */
  async change(
    sandboxId: string,
    change: Omit<SandboxChange, 'status'>,
    from?: readonly SandboxStatus[],
  ): Promise<Sandbox | undefined> {
    const sandbox = await this.#context.store.updateSandbox(sandboxId, change, from)
    const isLifetime = change.timeoutSeconds !== undefined || change.onIdle !== undefined
    if (sandbox?.status === 'running' && isLifetime) this.clocks.start(sandboxId, sandbox.timeoutSeconds)
    if (change.expiresAt !== undefined) this.maxAges.notice(sandbox?.expiresAt)
    return sandbox
  }

  /** Writes a new state and announces it; undefined when the current state has no transition to it. */
  async set(
    sandboxId: string,
    change: SandboxChange & { status: SandboxStatus },
    from: readonly SandboxStatus[] = statusesBefore(change.status),
    options?: UpdateOptions,
  ): Promise<Sandbox | undefined> {
    const sandbox = await this.#context.store.updateSandbox(sandboxId, change, from, options)
    if (!sandbox) return undefined
    if (change.activeAt !== undefined) this.#activity.noteWritten(sandboxId, change.activeAt)
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

  /** Returns when all transitions under way have ended and are recorded. Those that wait for a permit fail. */
  async close(): Promise<void> {
    this.usage.close()
    await this.maxAges.close()
    this.clocks.stopAll()
    this.#boots.abortAll()
    await this.#transitions.close()
    await this.maxAges.removed()
    await this.warm.close()
  }

  /** Finds the cause of `unavailable`: the sandbox may have stopped in the middle of the operation. */
  async #findCause(sandboxId: string, error: unknown): Promise<unknown> {
    if (!isServiceError(error, 'unavailable')) return error
    const sandbox = await this.#context.store.sandbox(sandboxId)
    return sandbox?.status === 'stopped' || sandbox?.status === 'error' ? notUsable(sandbox) : error
  }

  /** Reads a sandbox, without `orgId` of any organisation. Throws `not_found`. */
  async read(sandboxId: string, orgId?: string): Promise<Sandbox> {
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
  async #readUsable(sandboxId: string): Promise<Sandbox> {
    const sandbox = await this.read(sandboxId)
    if (sandbox.status !== 'running' && sandbox.status !== 'hibernated') throw notUsable(sandbox)
    return sandbox
  }

  async #idle(sandboxId: string): Promise<void> {
    // The clock restarted and ran out again during the wait for a permit; the waiting call checks it once more.
    if (this.#idling.has(sandboxId)) return
    this.#idling.add(sandboxId)
    const { log } = this.#context
    try {
      if (!(await this.#isIdle(sandboxId))) return
      const { onIdle } = await this.read(sandboxId)
      await (onIdle === 'stop' ? this.#stopIdle(sandboxId) : this.hibernate(sandboxId, { ifIdle: true }))
    } catch (error) {
      // Stopped, or used again: the guest may have been called in the middle of a restart.
      if (!this.clocks.isOver(sandboxId)) return
      log.warn({ err: error, sandboxId }, 'an idle sandbox could not be hibernated or stopped')
      const reasonMessage = error instanceof Error ? error.message : String(error)
      this.clocks.postpone(sandboxId, idleRetryMs)
      const change = { reason: 'runtime_failed', reasonMessage } as const
      await this.#context.store.updateSandbox(sandboxId, change, ['running']).catch(() => undefined)
    } finally {
      this.#idling.delete(sandboxId)
    }
  }

  /** Stops it unless it was used during the wait for its lock, or still is. A change of its lifetimes has restarted the clock. */
  async #stopIdle(sandboxId: string): Promise<void> {
    await this.#transitions.run(sandboxId, async () => {
      if (!(this.clocks.isOver(sandboxId) && (await this.#isIdle(sandboxId)))) return
      const sandbox = await this.read(sandboxId)
      const change = { status: 'stopped', stoppedAt: new Date(), ...endedBy(sandbox, 'idle') } as const
      if ((await this.set(sandboxId, change, ['running'])) === undefined) return
      await this.#removeMachine(sandboxId).catch((error: unknown) => {
        this.#context.log.warn({ err: error, sandboxId }, 'remains of an ended sandbox could not be removed')
      })
    })
  }

  /** Whether a sandbox whose clock has run out is unused. A client process makes the clock run on. */
  async #isIdle(sandboxId: string): Promise<boolean> {
    const { orgId } = await this.read(sandboxId)
    const activeAtMs = clientsActiveAtMs(await this.#context.guest(sandboxId, orgId).processes())
    if (activeAtMs === Infinity) this.clocks.touch(sandboxId)
    else this.clocks.touchAt(sandboxId, Math.min(activeAtMs, Date.now()))
    return this.clocks.isOver(sandboxId)
  }
}
