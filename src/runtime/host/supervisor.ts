import type { SandboxExit } from '../../sandbox/ports/runtime-driver.ts'
import type { Cgroups } from '../cgroups/index.ts'
import type { ProcessIdentity } from '../process.ts'
import { flushMemory } from './fence.ts'
import { probeGuest, Liveness } from './liveness.ts'
import type { DriverContext, OpenHost } from './context.ts'
import { exitOf } from './running.ts'
import { shareMemory } from './share-memory.ts'

/** Interval of the check for ended first processes, besides those that are told of. */
const watchIntervalMs = 250
/** Interval of the checks of network and disk pool. */
const tendIntervalMs = 2_000
/** A flush slows forks of memory that was just saved, so it waits up to this long. */
const flushIntervalMs = 30_000

/**
 * The driver's background work. It detects sandboxes that ended, ends those whose guests stopped answering, cleans up after
 * both and reports their exits; it maintains what all sandboxes share; and it finishes work that callers need not wait for.
 *
 *     idle ── start ──► watching ── stop ──► idle
 */
export class Supervisor {
  readonly #context: DriverContext
  readonly #liveness: Liveness
  /** Keys of the work that is queued or running. */
  readonly #attended = new Set<string>()
  /** Full checkpoints that have reached the disk: of their memory, what repeats earlier memory is to be shared. */
  #unshared: string[] = []
  #watching: { opened: OpenHost; timer: NodeJS.Timeout; stopping: AbortController } | undefined
  #tendedAt = 0
  #flushedAt = 0
  #onExit: (exit: SandboxExit) => void = () => undefined

  constructor(context: DriverContext) {
    this.#context = context
    this.#liveness = new Liveness({
      times: context.livenessTimes,
      runs: () => context.running.runs,
      probe: (id, answerMs) => probeGuest(context, id, answerMs),
      declareDead: (id, run) => this.#declareDead(id, run),
    })
  }

  start(opened: OpenHost): void {
    // The guest of an adopted sandbox may have been silent for long.
    for (const id of this.#context.running.runs.keys()) this.#liveness.probeNow(id)
    const timer = setInterval(() => this.#look(), watchIntervalMs)
    this.#watching = { opened, timer, stopping: new AbortController() }
    this.#context.running.onEnd(() => this.#look())
  }

  /** Returns when no work is left, that of callers included. */
  async stop(): Promise<void> {
    clearInterval(this.#watching?.timer)
    this.#unshared = []
    this.#watching?.stopping.abort()
    // Flushed before the wait too: the service may be killed during it.
    await Promise.all([this.#flushNow(), this.#context.locks.allSettled()])
    this.#watching = undefined
    await this.#flushNow()
  }

  async #flushNow(): Promise<void> {
    const { pool, inventory, log } = this.#context
    await flushMemory(pool, inventory).catch((error: unknown) =>
      log(`saved memory cannot be flushed: ${String(error)}`),
    )
  }

  onExit(listener: (exit: SandboxExit) => void): void {
    this.#onExit = listener
  }

  /** Has the guest of a sandbox probed at the next look. Cheap, since clients can cause it. */
  probeNow(id: string): void {
    this.#liveness.probeNow(id)
  }

  #look(): void {
    if (this.#watching === undefined) return
    this.#liveness.look()
    const { running, lazy, names, network, pool } = this.#context
    for (const id of new Set([...running.ended(), ...lazy.ended()])) {
      this.#attend(id, async ({ cgroups }) => {
        const fault = await lazy.settle(id)
        if (!running.runs.has(id) || (running.isUp(id) && fault === undefined)) return
        const exit = await exitOf(cgroups, names, id, fault)
        await this.#end(cgroups, exit)
      })
    }
    if (Date.now() - this.#flushedAt >= flushIntervalMs) this.flush()
    if (Date.now() - this.#tendedAt < tendIntervalMs) return
    this.#tendedAt = Date.now()
    this.#attend('the host', async () => {
      await network.tendForwarder()
      await pool.tend()
    })
    this.#attend('the files that sandboxes see', () => this.#showFiles())
    // With locks of their own: a slow forwarder or firewall program must not delay the packet rules.
    this.#attend('the packet rules', () => network.tendRules())
    this.#attend('the firewall', () => network.hostFirewall.tend())
  }

  /**
   * Starts what shows files to sandboxes, if it has ended, and has those files put in the place of the old ones in all that run. Each
   * sandbox waits for its own lock alone: what shows the files must be looked after meanwhile.
   */
  async #showFiles(): Promise<void> {
    const { lxcfs, running } = this.#context
    await lxcfs.check()
    await lxcfs.ensure()
    for (const [id, process] of running.outdated()) {
      this.#attend(`the files of ${id}`, ({ cgroups }) => running.showFiles(cgroups, id, process), id)
    }
  }

  #declareDead(id: string, run: ProcessIdentity): void {
    const { running, log } = this.#context
    this.#attend(id, async ({ cgroups }) => {
      // Other work, or an answer, may have come before this lock was free.
      if (running.runs.get(id) !== run || !this.#liveness.isDead(id, run)) return
      log(`the guest of sandbox ${id} does not answer any more: the sandbox is ended`)
      const message = 'the guest of the sandbox stopped answering'
      await this.#end(cgroups, { sandboxId: id, reason: 'runtime_failed', message })
    })
  }

  /** Reports the exit even if something cannot be removed now: the sandbox counts as ended from the first step on. */
  async #end(cgroups: Cgroups, exit: SandboxExit): Promise<void> {
    const { running, inventory } = this.#context
    try {
      await running.stop(cgroups, exit.sandboxId, inventory.sandboxes.get(exit.sandboxId)?.slot)
    } finally {
      this.#onExit(exit)
    }
  }

  /** Removes unused layers and memory in the background. */
  removeUnused(): void {
    this.#attend('what is unused', () => this.#context.inventory.removeUnused())
  }

  /** Flushes saved memory in the background. */
  flush(): void {
    this.#flushedAt = Date.now()
    this.#attend('the disk', async () => {
      this.#unshared.push(...(await flushMemory(this.#context.pool, this.#context.inventory)))
      this.#share()
    })
  }

  #share(): void {
    const signal = this.#watching?.stopping.signal
    this.#attend('repeated memory', async (opened) => {
      for (let id = this.#unshared.shift(); id !== undefined; id = this.#unshared.shift())
        await shareMemory(opened, id, signal)
    })
  }

  /** Runs work in the background under a lock, a sandbox's id or words with a blank, unless that of its key is queued or running. */
  #attend(key: string, work: (opened: OpenHost) => Promise<void>, lock = key): void {
    const opened = this.#watching?.opened
    if (opened === undefined || this.#attended.has(key)) return
    const { locks, log } = this.#context
    this.#attended.add(key)
    locks
      .run(lock, () => work(opened))
      .catch((error: unknown) => log(`attending to ${key} failed: ${String(error)}`))
      .finally(() => this.#attended.delete(key))
  }
}
