import { ServiceError } from '../../errors.ts'
import type { Quarantined } from '../../sandbox/ports/runtime-driver.ts'
import { makeRunFolders } from './run-folders.ts'
import { resolveHostTool } from './image-folder.ts'
import { lockDataDir } from './lock.ts'
import { releaseHost } from './open-host.ts'
import { makeParts } from './context.ts'
import type { Parts, RuncDriverOptions } from './context.ts'
import type { QuarantineItem } from './quarantine.ts'

/** The quarantine of a data directory that no driver has open, for an operator. Sandboxes may run meanwhile. */
export class OfflineQuarantine implements AsyncDisposable {
  readonly #parts: Parts
  readonly #lock: AsyncDisposable
  /** Records in force that cannot be read: nobody can tell from them which disk is theirs. */
  readonly #unreadable: readonly Quarantined[]

  private constructor(parts: Parts, lock: AsyncDisposable, unreadable: readonly Quarantined[]) {
    this.#parts = parts
    this.#lock = lock
    this.#unreadable = unreadable
  }

  /** Throws `unavailable` when a driver has the data directory. */
  static async open(options: RuncDriverOptions): Promise<OfflineQuarantine> {
    const parts = makeParts(options)
    const lock = await lockDataDir(parts.names)
    return new OfflineQuarantine(parts, lock, await parts.inventory.load())
  }

  get items(): readonly QuarantineItem[] {
    return this.#parts.inventory.quarantine.items
  }

  /** Throws `conflict` with the reason why an item cannot be put in force again. */
  async assertRestorable(item: QuarantineItem): Promise<void> {
    await this.#parts.inventory.recordToTakeBack(item)
  }

  async restore(item: QuarantineItem): Promise<void> {
    await this.#parts.inventory.takeBack(item)
  }

  /** Removes items with their disks. Layers and memory that nobody stands on any more go with the next start of a server. */
  async remove(items: readonly QuarantineItem[]): Promise<void> {
    const { names, pool, inventory, images } = this.#parts
    for (const { id } of items) {
      const twin = this.#unreadable.find((record) => record.id === id)
      if (twin !== undefined) {
        throw new ServiceError('conflict', `the other record of ${id} cannot be read: start the server first`)
      }
    }
    await makeRunFolders(names, await resolveHostTool(images.path))
    await pool.open()
    for (const item of items) await inventory.removeFromQuarantine(item)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await releaseHost(this.#parts, this.#lock)
  }
}
