import { setTimeout as sleep } from 'node:timers/promises'
import { ServiceError } from '../../errors.ts'
import { removeFolders } from '../cleanup.ts'
import type { DiskPool } from '../disk/index.ts'
import { exists } from '../exists.ts'
import type { HostTool } from '../hostd/index.ts'
import type { ContainerLimits } from '../oci/container-config.ts'
import { end, isAlive } from '../process.ts'
import { findLazyPages, lazyPagesStatus, startLazyPages, type LazyPages } from './lazy-pages.ts'
import type { CriuProgram } from './program.ts'
import { runImagesOf } from './restore.ts'

/** Only memory below this share of the limit comes lazily: a process that forks meanwhile gets its missing pages twice. */
const lazyLimitShare = 0.75
const loadTimeoutMs = 120_000
const loadPollMs = 5
/** The longest time between the end of a daemon and the status file of its watcher. */
const statusTimeoutMs = 2_000
const statusPollMs = 2

/**
 * Sandboxes that run while a CRIU daemon still loads their memory from images. States of each:
 *
 *     complete ── start ──► loading ──► the daemon has ended ── settle ──► complete, or failed ── remove ──► complete
 *
 * All state is in the sandbox's own folder of images, so that a later server continues. The daemon reads its own links of the images:
 * the checkpoint or the saved memory may be deleted meanwhile.
 */
export class LazyMemory {
  readonly #hostd: HostTool
  readonly #pool: DiskPool
  readonly #bytesMin: number
  readonly #loading = new Map<string, LazyPages>()

  constructor(hostd: HostTool, pool: DiskPool, bytesMin: number) {
    this.#hostd = hostd
    this.#pool = pool
    this.#bytesMin = bytesMin
  }

  /** Whether memory comes lazily at all where the host can do that. */
  get isWanted(): boolean {
    return this.#bytesMin > 0
  }

  /** Whether a saved memory comes lazily. */
  suits(criu: CriuProgram, { bytes = 0 }: { bytes?: number }, { memoryMb }: ContainerLimits): boolean {
    const fits = bytes < memoryMb * 1024 * 1024 * lazyLimitShare
    const can = criu.path !== undefined && criu.lazyPages.ok
    return this.isWanted && can && bytes >= this.#bytesMin && fits
  }

  /** Starts the daemon of a lazy restore from the staged images of a sandbox. `remove` undoes what a failure leaves. */
  async start(criu: string, id: string, members: readonly string[]): Promise<void> {
    this.#loading.set(id, await startLazyPages(this.#hostd.run, criu, this.#images(id), members))
  }

  /** Takes over the daemon of an earlier server. False when memory is missing and no daemon brings it. */
  async adopt(id: string): Promise<boolean> {
    // Most sandboxes have none.
    if (!(await exists(this.#images(id)))) return true
    const pages = await findLazyPages(this.#images(id))
    if (pages !== undefined) this.#loading.set(id, pages)
    return (await this.settle(id)) === undefined
  }

  /** Sandboxes whose daemon has ended. */
  ended(): string[] {
    return [...this.#loading].filter(([, pages]) => !isAlive(pages.daemon)).map(([id]) => id)
  }

  /**
   * Checks how the daemon of a sandbox ended, and removes its images when all is well or there was no daemon. Returns what is wrong;
   * undefined too while the daemon works.
   */
  async settle(id: string): Promise<string | undefined> {
    const pages = this.#loading.get(id)
    if (pages !== undefined) {
      if (isAlive(pages.daemon)) return undefined
      const status = await this.#status(id, pages)
      if (status !== 0) return 'its memory is incomplete: the CRIU daemon that loaded it ended too early'
    }
    await this.remove(id)
    return undefined
  }

  /** Waits until the memory of a sandbox is complete. Throws `conflict` when it does not come. */
  async loaded(id: string): Promise<void> {
    const until = Date.now() + loadTimeoutMs
    for (let pages = this.#loading.get(id); pages !== undefined; pages = this.#loading.get(id)) {
      const fault = await this.settle(id)
      if (fault !== undefined) throw new ServiceError('conflict', fault)
      if (Date.now() > until) throw new ServiceError('conflict', 'the memory of the sandbox is still coming back')
      await sleep(loadPollMs)
    }
  }

  /** Ends the watcher, before the sandbox is ended: the watcher must not kill a later run of the same id. */
  async unwatch(id: string): Promise<void> {
    const pages = await this.#find(id)
    if (pages !== undefined) await end(pages.watcher)
  }

  /** Ends the daemon of a sandbox that has all its memory or does not run, and removes its images. Harmless without one. */
  async remove(id: string): Promise<void> {
    await this.unwatch(id)
    const pages = await this.#find(id)
    if (pages !== undefined) await end(pages.daemon)
    this.#loading.delete(id)
    await removeFolders(this.#hostd, [this.#images(id)])
  }

  /** Forgets all daemons; they run on. */
  forget(): void {
    this.#loading.clear()
  }

  async #status(id: string, { watcher }: LazyPages): Promise<number | undefined> {
    const until = Date.now() + statusTimeoutMs
    for (;;) {
      const watched = isAlive(watcher)
      const status = await lazyPagesStatus(this.#images(id))
      if (status !== undefined || !watched || Date.now() > until) return status
      await sleep(statusPollMs)
    }
  }

  async #find(id: string): Promise<LazyPages | undefined> {
    return this.#loading.get(id) ?? (await findLazyPages(this.#images(id)))
  }

  #images(id: string): string {
    return this.#pool.path(runImagesOf(id))
  }
}
