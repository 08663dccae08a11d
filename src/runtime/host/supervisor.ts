import type { SandboxExit } from '../../sandbox/ports/runtime-driver.ts'
import type { Cgroups } from './cgroups.ts'
import { flushMemory } from '../criu/fence.ts'
import { askGuest, Liveness } from './liveness.ts'
import type { OpenHost } from './open-host.ts'
import type { DriverContext } from './context.ts'
import type { ProcessIdentity } from './process.ts'
import { exitOf } from './running.ts'

/** How often the first processes of sandboxes are looked at. */
const watchIntervalMs = 250
/** How often the network and the disk pool are. */
const tendIntervalMs = 2_000
/** How long saved memory whose callers expect forks of it at once may wait for the flush, which slows those. */
const flushIntervalMs = 30_000
/** How often the quarantine is. */
const expiryIntervalMs = 3_600_000
/** The key of the lock for that; no id of a sandbox looks like one of these. */
const expiryKey = 'the quarantine'
/** The key of the turn that removes what nobody needs. */
const unusedKey = 'what is unused'
/** The key of the turn that brings to the disk what was saved. */
const flushKey = 'the disk'
/** The key of the turn that tends to the host; no id of a sandbox looks like it. */
const hostKey = 'the host'
/** The key under which the packet rules are looked after: no forwarder that is slow to start may keep them from it. */
const rulesKey = 'the packet rules'
/** The key under which the host's firewall is looked after: its programs may be slow. */
const firewallKey = 'the firewall'

/**
 * What the driver does without being asked: it looks for sandboxes that ended by themselves, ends those whose guests do
 * not answer any more, clears up after them and tells; it tends to what all sandboxes share; and it finishes what callers
 * need not wait for.
 *
 *     idle ── start ──► watching ── stop ──► idle
 */
export class Supervisor {
  readonly #context: DriverContext
  readonly #checks: Liveness
  /** Keys of the locks that are asked for and have not ended. */
  readonly #attended = new Set<string>()
  #watching: { opened: OpenHost; timer: NodeJS.Timeout } | undefined
  #tendedAt = 0
  #flushedAt = 0
  #expiredAt = 0
  #onExit: (exit: SandboxExit) => void = () => undefined

  constructor(context: DriverContext) {
    this.#context = context
    this.#checks = new Liveness({
      patience: context.guestPatience,
      runs: () => context.running.runs,
      ask: (id, answerMs) => askGuest(context, id, answerMs),
      declareDead: (id, run) => this.#declareDead(id, run),
    })
  }

  start(opened: OpenHost): void {
    // What was adopted may not have answered for long.
    for (const id of this.#context.running.runs.keys()) this.#checks.probeNow(id)
    // `open` has just removed what had expired.
    this.#expiredAt = Date.now()
    this.#watching = { opened, timer: setInterval(() => this.#look(), watchIntervalMs) }
  }

  /** Returns when nobody, callers included, works on anything. */
  async stop(): Promise<void> {
    clearInterval(this.#watching?.timer)
    // Before the wait too: whoever stops the service may not wait for the end of it.
    await Promise.all([this.#flushNow(), this.#context.locks.allSettled()])
    this.#watching = undefined
    await this.#flushNow()
  }

  async #flushNow(): Promise<void> {
    const { log } = this.#context
    await flushMemory(this.#context).catch((error: unknown) => log(`saved memory cannot be flushed: ${String(error)}`))
  }

  onExit(listener: (exit: SandboxExit) => void): void {
    this.#onExit = listener
  }

  /** The guest of a sandbox seems not to answer: it is asked at the next look. Costs nothing, as clients can bring it about. */
  probeNow(id: string): void {
    this.#checks.probeNow(id)
  }

  #look(): void {
    if (this.#watching === undefined) return
    this.#checks.look()
    const { running, lazy, names, network, pool, inventory, quarantineKeptMs } = this.#context
    for (const id of new Set([...running.ended(), ...lazy.ended()])) {
      this.#attend(id, async ({ cgroups }) => {
        const fault = await lazy.settle(id)
        if (!running.has(id) || (running.isUp(id) && fault === undefined)) return
        const exit = await exitOf(cgroups, names, id, fault)
        await this.#end(cgroups, exit)
      })
    }
    if (Date.now() - this.#flushedAt >= flushIntervalMs) this.flush()
    if (Date.now() - this.#tendedAt < tendIntervalMs) return
    this.#tendedAt = Date.now()
    this.#attend(hostKey, async () => {
      await network.tendForwarder()
      await pool.tend()
    })
    if (Date.now() - this.#expiredAt >= expiryIntervalMs) {
      this.#expiredAt = Date.now()
      this.#attend(expiryKey, () => inventory.removeExpired(quarantineKeptMs))
    }
    this.#attend(rulesKey, () => network.tendRules())
    this.#attend(firewallKey, () => network.hostFirewall.tend())
  }

  #declareDead(id: string, run: ProcessIdentity): void {
    const { running, log } = this.#context
    this.#attend(id, async ({ cgroups }) => {
      // Its turn may have come after something else was done with it, or after an answer.
      if (running.runs.get(id) !== run || !this.#checks.isDead(id, run)) return
      log(`the guest of sandbox ${id} does not answer any more: the sandbox is ended`)
      const message = 'the guest of the sandbox stopped answering'
      await this.#end(cgroups, { sandboxId: id, reason: 'runtime_failed', message })
    })
  }

  /** Told even if something of it cannot be removed now: from the first step on it does not count as one that runs. */
  async #end(cgroups: Cgroups, exit: SandboxExit): Promise<void> {
    const { running, inventory } = this.#context
    try {
      await running.stop(cgroups, exit.sandboxId, inventory.sandboxes.get(exit.sandboxId)?.slot)
    } finally {
      this.#onExit(exit)
    }
  }

  /** Removes in the background what nobody needs any more. */
  removeUnused(): void {
    this.#attend(unusedKey, () => this.#context.inventory.removeUnused())
  }

  /** Brings saved memory to the disk in the background. */
  flush(): void {
    this.#flushedAt = Date.now()
    this.#attend(flushKey, () => flushMemory(this.#context))
  }

  /** Does something beside the calls, in its turn; a second time only when the first has ended. */
  #attend(key: string, work: (opened: OpenHost) => Promise<void>): void {
    const opened = this.#watching?.opened
    if (opened === undefined || this.#attended.has(key)) return
    const { locks, log } = this.#context
    this.#attended.add(key)
    locks
      .run(key, () => work(opened))
      .catch((error: unknown) => log(`attending to ${key} failed: ${String(error)}`))
      .finally(() => this.#attended.delete(key))
  }
}
