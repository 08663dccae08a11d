import { ServiceError, isServiceError } from '../errors.ts'
import type { EventBus } from '../events/index.ts'
import type { Creation, CreationNote } from '../lib/creation.ts'
import type { Log } from '../lib/log.ts'
import { ActivityNotes } from './activity-notes.ts'
import { type CreationOptions, type Prepare, createSandbox } from './creation.ts'
import type { RuntimeDriver, SandboxExit, SandboxSpec } from './ports/runtime-driver.ts'
import type { Guest } from './ports/guest.ts'
import { IdleClocks } from './idle.ts'
import type { SandboxLimits } from './limits.ts'
import { Moves } from './moves.ts'
import { specOf } from './new-sandbox.ts'
import { clientsActiveAtMs } from './process-id.ts'
import { RunningPlaces } from './running-places.ts'
import { type Sandbox, type SandboxChange, type SandboxStatus, notUsable, statusesBefore } from './sandbox.ts'
import { Starts, stoppedMeanwhile } from './starts.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'
import { withinWakeWait } from './wake-wait.ts'

export interface LifecycleDeps {
  store: SandboxStore
  driver: RuntimeDriver
  guest: (sandboxId: string) => Guest
  bus: EventBus
  log: Log
  limits: SandboxLimits
}

const answerWaitMs = 5000
const idleRetryMs = 60_000

/**
 * Moves sandboxes through their states. The row in the store is the truth; a row is changed before the machine where that
 * ends something (delete), and after it where that starts something (create, wake), so that a crash between the two leaves
 * a row that says less than what runs, which reconciliation cleans up.
 *
 * Moves of one sandbox come one after the other (`Moves`); plain operations wait for one under way and hold up none.
 */
export class Lifecycle {
  readonly clocks: IdleClocks
  readonly #deps: LifecycleDeps
  readonly #places: RunningPlaces
  readonly #moves: Moves
  readonly #starts = new Starts()
  /** Wakes that operations wait for: they share one, its failure included. */
  readonly #wakes = new Map<string, Promise<Sandbox>>()
  /** Sandboxes whose clock has run out, and that wait for their turn to sleep. */
  readonly #idling = new Set<string>()
  /** Sandboxes whose end was told, and neither written down nor overtaken by a new start. */
  readonly #ended = new Set<string>()
  readonly #activity: ActivityNotes
  readonly #wakePreparation: (sandbox: Sandbox) => Promise<Prepare>

  /** `wakePreparation` is asked before a wake begins, and what it answers runs in the woken sandbox. */
  constructor(deps: LifecycleDeps, wakePreparation: (sandbox: Sandbox) => Promise<Prepare>) {
    this.#deps = deps
    this.#activity = new ActivityNotes(deps.store, deps.log)
    this.#places = new RunningPlaces(deps.store, deps.limits.runningSandboxesMax)
    this.#moves = new Moves(deps.limits.startsAtOnce)
    this.#wakePreparation = wakePreparation
    this.clocks = new IdleClocks((sandboxId) => void this.#idle(sandboxId))
    deps.driver.onExit((exit) => {
      this.#ended.add(exit.sandboxId)
      void this.#exited(exit)
    })
  }

  async get(orgId: string, sandboxId: string): Promise<Sandbox> {
    return await this.#known(sandboxId, orgId)
  }

  /** The sandbox of a creation that has come to its end before, as it is now. Throws `not_found` when it is gone. */
  async made(orgId: string, creation: Creation | undefined): Promise<Sandbox | undefined> {
    const id = creation?.id('sb-')
    return id !== undefined && creation?.made.includes(id) ? await this.#known(id, orgId) : undefined
  }

  /** See {@link createSandbox}. */
  async create(sandbox: Sandbox, options: CreationOptions): Promise<Sandbox> {
    const deps = {
      ...this.#deps,
      places: this.#places,
      starts: this.#starts,
      turns: this.#moves.turns,
      move: this.#moves.run.bind(this.#moves),
      set: this.#set.bind(this),
    }
    return await createSandbox(deps, sandbox, options)
  }

  /** Runs an operation on a running sandbox, waking it first, and counts as activity until it ends. */
  async use<Result>(
    orgId: string,
    sandboxId: string,
    work: (guest: Guest, sandbox: Sandbox) => Promise<Result>,
  ): Promise<Result> {
    // Who may not use it does not keep it awake either.
    await this.#known(sandboxId, orgId)
    const release = this.hold(sandboxId)
    try {
      const sandbox = await this.awake(sandboxId, orgId)
      return await work(this.#deps.guest(sandboxId), sandbox)
    } catch (error) {
      throw await this.#cause(sandboxId, error)
    } finally {
      release()
    }
  }

  /** The sandbox once it runs. Throws `sandbox_stopped`, `conflict` (in `error`), `unavailable` (the wake takes too long). */
  async awake(sandboxId: string, orgId?: string): Promise<Sandbox> {
    const { wakeWaitMs } = this.#deps.limits
    const underWay = this.#wakes.get(sandboxId)
    if (!underWay) await withinWakeWait(this.#moves.settled(sandboxId), wakeWaitMs)
    const sandbox = await this.#known(sandboxId, orgId)
    if (sandbox.status === 'running') return sandbox
    if (sandbox.status === 'hibernated') return await withinWakeWait(underWay ?? this.wake(sandboxId), wakeWaitMs)
    throw notUsable(sandbox)
  }

  /** For looks that neither wake a sandbox nor count as activity. */
  async guestIfRunning(orgId: string, sandboxId: string): Promise<Guest | undefined> {
    const sandbox = await this.get(orgId, sandboxId)
    return sandbox.status === 'running' ? this.#deps.guest(sandboxId) : undefined
  }

  hold(sandboxId: string): () => void {
    if (this.clocks.activeAt(sandboxId)) this.#activity.note(sandboxId)
    return this.clocks.hold(sandboxId)
  }

  /** Joins a wake that is under way, whoever began it. */
  async wake(sandboxId: string, timeoutSeconds?: number): Promise<Sandbox> {
    const underWay = this.#wakes.get(sandboxId)
    const wake = underWay ?? this.#wake(sandboxId).finally(() => this.#wakes.delete(sandboxId))
    this.#wakes.set(sandboxId, wake)
    const sandbox = await wake
    if (timeoutSeconds === undefined) return sandbox
    return (await this.change(sandboxId, { timeoutSeconds })) ?? sandbox
  }

  async #wake(sandboxId: string): Promise<Sandbox> {
    const wake = async (signal: AbortSignal) => {
      const sandbox = await this.#known(sandboxId)
      if (sandbox.status === 'running') {
        this.clocks.touch(sandboxId)
        return sandbox
      }
      if (sandbox.status !== 'hibernated') throw notUsable(sandbox)
      return await this.#places.forWake(sandbox.orgId, async () => {
        const prepare = await this.#wakePreparation(sandbox)
        await this.#moves.turns.use(() => this.#deps.driver.wake(specOf(sandbox), signal), {
          key: sandbox.orgId,
          signal,
        })
        this.#ended.delete(sandboxId)
        try {
          await prepare(this.#deps.guest(sandboxId), sandbox, signal)
        } catch (error) {
          // A deletion waits for this move and removes the machine, and the next server puts it to sleep.
          if (!signal.aborted) await this.#sleepAgain(sandbox, error, signal)
          throw error
        }
        const running = await this.#set(sandboxId, runningNow())
        if (!running) throw stoppedMeanwhile(sandboxId)
        return running
      })
    }
    return await this.#moves.run(sandboxId, () => this.#starts.run(sandboxId, wake))
  }

  /** With `ifIdle` it gives up, with undefined, when the sandbox was used while this waited for its turn, or still is. */
  async hibernate(sandboxId: string, ifIdle = false): Promise<{ sizeBytes: number } | undefined> {
    return await this.#moves.runInTurn(await this.#known(sandboxId), async () => {
      if (ifIdle && !(this.clocks.isOver(sandboxId) && (await this.#isIdle(sandboxId)))) return undefined
      const sandbox = await this.#known(sandboxId)
      // A repeat does nothing and says again what is kept.
      if (sandbox.status === 'hibernated') return await this.#deps.driver.hibernate(sandboxId)
      if (sandbox.status !== 'running') throw notUsable(sandbox)
      const saved = await this.#deps.driver.hibernate(sandboxId).catch(async (error: unknown) => {
        // Where it ended by itself, that was told or will be, and is what the record must say.
        const hasEnded = this.#ended.has(sandboxId) || isServiceError(error, 'unavailable')
        if (!hasEnded) await this.#settleAfter(sandbox, error)
        throw error
      })
      // What it had in memory is lost, and the record must say so.
      if (this.#ended.has(sandboxId)) throw new ServiceError('unavailable', `sandbox ${sandboxId} has just ended`)
      await this.#set(sandboxId, { status: 'hibernated', reason: undefined, reasonMessage: undefined })
      return saved
    })
  }

  /**
   * Puts something else in the place of what a sandbox runs (its processes started again, or a checkpoint's state) and
   * leaves it running. Where the driver fails it says what is left: the record becomes `hibernated` with the reason, or
   * has the reason while the sandbox runs on without its processes. Its clock stands still meanwhile: no guest can be asked.
   */
  async replace(sandboxId: string, work: (spec: SandboxSpec) => Promise<void>): Promise<Sandbox> {
    const release = this.hold(sandboxId)
    const move = async () => {
      const sandbox = await this.#usable(sandboxId)
      const replaced = async () => {
        try {
          await work(specOf(sandbox))
          this.#ended.delete(sandboxId)
        } catch (error) {
          await this.#settleAfter(sandbox, error)
          throw error
        }
        const running = await this.#set(sandboxId, runningNow(), ['running', 'hibernated'])
        if (!running) throw new ServiceError('sandbox_stopped', `sandbox ${sandboxId} is stopped`)
        return running
      }
      return sandbox.status === 'hibernated' ? await this.#places.forWake(sandbox.orgId, replaced) : await replaced()
    }
    try {
      return await this.#moves.runInTurn(await this.#known(sandboxId), move)
    } finally {
      release()
    }
  }

  /** Changes the sizes of a sandbox: at once where it runs, else from its next wake on. */
  async resize(sandboxId: string, sizes: Pick<Sandbox, 'cpuCount' | 'memoryMb'>): Promise<Sandbox> {
    return await this.#moves.still(sandboxId, async () => {
      const sandbox = await this.#usable(sandboxId)
      if (sandbox.status === 'running') await this.#deps.driver.resize({ ...specOf(sandbox), ...sizes })
      this.clocks.touch(sandboxId)
      return (await this.change(sandboxId, sizes)) ?? sandbox
    })
  }

  /** Stops it for good: the record first, so that nobody uses it any more, then what starts it, then the machine. */
  async delete(sandboxId: string): Promise<void> {
    await this.#set(sandboxId, { status: 'stopped', stoppedAt: new Date() })
    this.#starts.cutOff(sandboxId)
    await this.#moves.run(sandboxId, () => this.#deps.driver.delete(sandboxId))
  }

  /** Runs work of the driver that needs the sandbox to run and to make no move meanwhile: a checkpoint. */
  async still<Result>(sandboxId: string, work: () => Promise<Result>): Promise<Result> {
    return await this.#moves.still(sandboxId, async () => {
      const sandbox = await this.#known(sandboxId)
      if (sandbox.status !== 'running') throw notUsable(sandbox)
      return await this.#moves.turns.use(work, { key: sandbox.orgId, signal: this.#moves.closing })
    })
  }

  /** Changes fields that are no state. */
  async change(sandboxId: string, change: Omit<SandboxChange, 'status'>): Promise<Sandbox | undefined> {
    const sandbox = await this.#deps.store.updateSandbox(sandboxId, change)
    if (sandbox?.status === 'running' && change.timeoutSeconds !== undefined) {
      this.clocks.start(sandboxId, sandbox.timeoutSeconds)
    }
    return sandbox
  }

  /** Whether its guest does, within a few seconds; for work that holds its lock. */
  async answers(sandboxId: string): Promise<boolean> {
    const hello = this.#deps.guest(sandboxId).hello(AbortSignal.timeout(answerWaitMs))
    return await hello.then(
      () => true,
      () => false,
    )
  }

  /** Takes a sandbox that was found running at the start of this process. */
  adopt(sandbox: Sandbox): void {
    this.clocks.start(sandbox.id, sandbox.timeoutSeconds)
  }

  /** Records what was found at the start of this process, without touching the machine. */
  async found(sandboxId: string, change: SandboxChange & { status: SandboxStatus }): Promise<void> {
    await this.#set(sandboxId, change)
  }

  /** Returns when all moves under way have ended and are written down. Those that wait for a turn give up. */
  async close(): Promise<void> {
    this.clocks.stopAll()
    this.#starts.cutOffAll()
    await this.#moves.close()
  }

  /** A guest that does not answer says nothing of why: its sandbox may have been stopped in the middle of the operation. */
  async #cause(sandboxId: string, error: unknown): Promise<unknown> {
    if (!isServiceError(error, 'unavailable')) return error
    const sandbox = await this.#deps.store.sandbox(sandboxId)
    return sandbox?.status === 'stopped' || sandbox?.status === 'error' ? notUsable(sandbox) : error
  }

  async #known(sandboxId: string, orgId?: string): Promise<Sandbox> {
    const sandbox = await this.#deps.store.sandbox(sandboxId, orgId)
    if (!sandbox) throw new ServiceError('not_found', `no sandbox ${sandboxId}`)
    return sandbox
  }

  /** A sandbox that runs or could; for work that holds its lock. */
  async #usable(sandboxId: string): Promise<Sandbox> {
    const sandbox = await this.#known(sandboxId)
    if (sandbox.status !== 'running' && sandbox.status !== 'hibernated') throw notUsable(sandbox)
    return sandbox
  }

  /** After a failed replacement or sleep the machine itself knows whether the sandbox still runs. */
  async #settleAfter(sandbox: Sandbox, error: unknown): Promise<void> {
    if (sandbox.status !== 'running') return
    if (await this.answers(sandbox.id)) {
      if (!isServiceError(error) || error.details['startedAnew'] !== true) return
      const change = { startedAt: new Date(), reason: 'runtime_failed', reasonMessage: error.message } as const
      await this.change(sandbox.id, change)
      return
    }
    this.#deps.log.warn({ err: error, sandboxId: sandbox.id }, 'a sandbox does not run after a failure, and hibernates')
    const reasonMessage =
      error instanceof ServiceError ? error.message : 'its processes ended in a failure of the runtime'
    await this.#set(sandbox.id, { status: 'hibernated', reason: 'runtime_failed', reasonMessage })
  }

  /** What could not be prepared hibernates once more. Where that fails and it runs on, the record says so and why. */
  async #sleepAgain({ id, orgId }: Sandbox, error: unknown, signal: AbortSignal): Promise<void> {
    try {
      await this.#moves.turns.use(() => this.#deps.driver.hibernate(id), { key: orgId, signal })
    } catch (cause) {
      if (signal.aborted) return
      this.#deps.log.warn({ err: cause, sandboxId: id }, 'a sandbox could not be put back to sleep')
      const reason = isServiceError(error, 'patch_failed') ? 'patch_failed' : 'runtime_failed'
      const reasonMessage = error instanceof ServiceError ? error.message : 'the sandbox could not be prepared'
      if (await this.answers(id)) await this.#set(id, { ...runningNow(), reason, reasonMessage })
      else await this.change(id, { reason, reasonMessage })
    }
  }

  async #idle(sandboxId: string): Promise<void> {
    // Its clock began anew and ran out again while this waited for its turn, and is looked at once more then.
    if (this.#idling.has(sandboxId)) return
    this.#idling.add(sandboxId)
    const { log } = this.#deps
    try {
      if (await this.#isIdle(sandboxId)) await this.hibernate(sandboxId, true)
    } catch (error) {
      // Stopped, or used again: its guest may have been asked in the middle of a restart.
      if (!this.clocks.isOver(sandboxId)) return
      log.warn({ err: error, sandboxId }, 'an idle sandbox could not be hibernated')
      const reasonMessage = error instanceof Error ? error.message : String(error)
      this.clocks.postpone(sandboxId, idleRetryMs)
      const change = { reason: 'runtime_failed', reasonMessage } as const
      await this.#deps.store.updateSandbox(sandboxId, change, ['running']).catch(() => undefined)
    } finally {
      this.#idling.delete(sandboxId)
    }
  }

  /** Whether nobody uses a sandbox whose clock has run out. Where somebody does, the clock runs on. */
  async #isIdle(sandboxId: string): Promise<boolean> {
    const activeAtMs = clientsActiveAtMs(await this.#deps.guest(sandboxId).processes())
    if (activeAtMs === Infinity) this.clocks.touch(sandboxId)
    else this.clocks.touchAt(sandboxId, Math.min(activeAtMs, Date.now()))
    return this.clocks.isOver(sandboxId)
  }

  async #exited(exit: SandboxExit): Promise<void> {
    const { log } = this.#deps
    try {
      await this.#moves.run(exit.sandboxId, async () => {
        this.#ended.delete(exit.sandboxId)
        // While this waited for its turn, a restart or a restore may have started the sandbox again.
        if (await this.answers(exit.sandboxId)) return
        log.warn(exit, 'a sandbox ended by itself')
        const change = { status: 'error', reason: exit.reason, reasonMessage: exit.message } as const
        await this.#set(exit.sandboxId, change, ['running'])
      })
    } catch (error) {
      log.error({ err: error, sandboxId: exit.sandboxId }, 'the end of a sandbox could not be recorded')
    }
  }

  /** Writes a new state and announces it; undefined when the sandbox was not in a state that leads there. */
  async #set(
    sandboxId: string,
    change: SandboxChange & { status: SandboxStatus },
    from: readonly SandboxStatus[] = statusesBefore(change.status),
    note?: CreationNote,
  ): Promise<Sandbox | undefined> {
    const sandbox = await this.#deps.store.updateSandbox(sandboxId, change, from, note)
    if (!sandbox) return undefined
    if (sandbox.status === 'running') this.clocks.start(sandboxId, sandbox.timeoutSeconds)
    else {
      this.clocks.stop(sandboxId)
      this.#activity.forget(sandboxId)
    }
    const reason = sandbox.reason === undefined ? {} : { reason: sandbox.reason }
    this.#deps.bus.publish({ type: 'sandbox_changed', sandboxId, status: sandbox.status, ...reason })
    return sandbox
  }
}

function runningNow() {
  return { status: 'running', startedAt: new Date(), reason: undefined, reasonMessage: undefined } as const
}
