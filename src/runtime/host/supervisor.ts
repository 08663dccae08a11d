import type { KeyedMutex } from '../../lib/async/mutex.ts'
import type { SandboxExit } from '../../sandbox/ports/runtime-driver.ts'
import type { HostNames } from '../host-names.ts'
import type { HostTool } from '../hostd/index.ts'
import type { ProcessIdentity } from '../process.ts'
import { flushMemory } from './fence.ts'
import { probeGuest, Liveness, type LivenessTimes, type ProbeHost } from './liveness.ts'
import type { Machine } from './machine.ts'
import { exitOf, type RunningSandboxes } from './running.ts'
import { shareMemory } from './share-memory.ts'

/** Interval of the check for ended first processes, besides those that hostd reports. */
const watchIntervalMs = 250
/** Interval of the checks of network and disk pool. */
const tendIntervalMs = 2_000
/** A flush slows forks of memory that was just saved, so it waits up to this long. */
const flushIntervalMs = 30_000

interface SupervisorOptions
  extends ProbeHost, Pick<Machine, 'cgroups' | 'pool' | 'network' | 'egress' | 'inventory' | 'lazy' | 'lxcfs' | 'log'> {
  names: HostNames
  hostd: ProbeHost['hostd'] & HostTool
  running: RunningSandboxes
  /** Serialise work on one sandbox, by its id. */
  locks: KeyedMutex
  livenessTimes: LivenessTimes
  /** Called for each sandbox that has ended by itself. */
  onExit: (exit: SandboxExit) => void
}

/**
 * The driver's background work. It detects sandboxes that ended, ends those whose guests stopped answering, cleans up after
 * both and reports their exits; it maintains what all sandboxes share; and it finishes work that callers need not wait for.
 *
 *     idle ── start ──► watching ── stop ──► idle
 */
export class Supervisor {
  readonly #options: SupervisorOptions
  readonly #liveness: Liveness
  /** Keys of the work that is queued or running. */
  readonly #attended = new Set<string>()
  /** Full checkpoints that have reached the disk, and whose memory does not share space with earlier memory yet. */
  #unshared: string[] = []
  #watching: { timer: NodeJS.Timeout; stopping: AbortController } | undefined
  #tendedAt = 0
  #flushedAt = 0

  constructor(options: SupervisorOptions) {
    this.#options = options
    this.#liveness = new Liveness({
      times: options.livenessTimes,
      runs: () => options.running.runs,
      probe: (id, answerMs) => probeGuest(options, id, answerMs),
      declareDead: (id, run) => this.#declareDead(id, run),
    })
  }

  start(): void {
    // The guest of an adopted sandbox may have been silent for long.
    for (const id of this.#options.running.runs.keys()) this.#liveness.probeNow(id)
    const timer = setInterval(() => this.#look(), watchIntervalMs)
    this.#watching = { timer, stopping: new AbortController() }
    this.#options.running.onEnd(() => this.#look())
  }

  /** Waits until no work is left, that of callers included. */
  async stop(): Promise<void> {
    clearInterval(this.#watching?.timer)
    this.#unshared = []
    this.#watching?.stopping.abort()
    // Flush before the wait too, during which the service may be killed.
    await Promise.all([this.#flushNow(), this.#options.locks.allSettled()])
    this.#watching = undefined
    await this.#flushNow()
  }

  async #flushNow(): Promise<void> {
    const { pool, inventory, log } = this.#options
    await flushMemory(pool, inventory).catch((error: unknown) =>
      log(`saved memory cannot be flushed: ${String(error)}`),
    )
  }

  /** Has the guest of a sandbox probed at the next look. Cheap, since clients can cause it. */
  probeNow(id: string): void {
    this.#liveness.probeNow(id)
  }

  #look(): void {
    if (this.#watching === undefined) return
    this.#liveness.look()
    const { running, lazy, names, cgroups, network, egress, pool } = this.#options
    for (const id of new Set([...running.ended(), ...lazy.ended()])) {
      this.#attend(id, async () => {
        const fault = await lazy.settle(id)
        if (!running.runs.has(id) || (running.isUp(id) && fault === undefined)) return
        const exit = await exitOf(cgroups, names, id, fault)
        await this.#end(exit)
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
    this.#attend('egress', () => egress.tend())
  }

  /**
   * Starts lxcfs again if it has ended, and replaces its files in all running sandboxes, each under its own lock, so that lxcfs is checked
   * meanwhile.
   */
  async #showFiles(): Promise<void> {
    const { lxcfs, running } = this.#options
    await lxcfs.check()
    await lxcfs.ensure()
    for (const [id, process] of running.outdated()) {
      this.#attend(`the files of ${id}`, () => running.showFiles(id, process), id)
    }
  }

  #declareDead(id: string, run: ProcessIdentity): void {
    const { running, log } = this.#options
    this.#attend(id, async () => {
      // Other work, or an answer, may have come before this lock was free.
      if (running.runs.get(id) !== run || !this.#liveness.isDead(id, run)) return
      log(`the guest of sandbox ${id} does not answer any more: the sandbox is ended`)
      const message = 'the guest of the sandbox stopped answering'
      await this.#end({ sandboxId: id, reason: 'runtime_failed', message })
    })
  }

  /** Reports the exit even if something cannot be removed now: the sandbox counts as ended from the first step on. */
  async #end(exit: SandboxExit): Promise<void> {
    const { running, inventory, onExit } = this.#options
    try {
      await running.stop(exit.sandboxId, inventory.sandboxes.get(exit.sandboxId)?.slot)
    } finally {
      onExit(exit)
    }
  }

  /** Removes unused layers and memory in the background. */
  removeUnused(): void {
    this.#attend('what is unused', () => this.#options.inventory.removeUnused())
  }

  /** Flushes saved memory in the background. */
  flush(): void {
    this.#flushedAt = Date.now()
    this.#attend('the disk', async () => {
      this.#unshared.push(...(await flushMemory(this.#options.pool, this.#options.inventory)))
      this.#share()
    })
  }

  #share(): void {
    const signal = this.#watching?.stopping.signal
    this.#attend('repeated memory', async () => {
      for (let id = this.#unshared.shift(); id !== undefined; id = this.#unshared.shift())
        await shareMemory(this.#options, id, signal)
    })
  }

  /** Runs work in the background unless work of this key is queued or running. `lock`: a sandbox's id, or words with a blank. */
  #attend(key: string, work: () => Promise<void>, lock = key): void {
    if (this.#watching === undefined || this.#attended.has(key)) return
    const { locks, log } = this.#options
    this.#attended.add(key)
    locks
      .run(lock, work)
      .catch((error: unknown) => log(`attending to ${key} failed: ${String(error)}`))
      .finally(() => this.#attended.delete(key))
  }
}
