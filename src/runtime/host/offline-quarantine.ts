import { ServiceError } from '../../errors.ts'
import type { Quarantined } from '../../sandbox/ports/runtime-driver.ts'
import { makeRunFolders } from './run-folders.ts'
import { resolveHostTool } from './image-folder.ts'
import { lockHost, releaseHost } from './open-host.ts'
import { createContext, type DriverContext, type OciDriverOptions } from './context.ts'
import type { QuarantineItem } from './quarantine.ts'

/** The quarantine of a data directory that no driver has open. Sandboxes may run meanwhile. */
export class OfflineQuarantine implements AsyncDisposable {
  readonly #context: DriverContext
  readonly #lock: AsyncDisposable
  /** Records in force that cannot be read: their disks are unknown. */
  readonly #unreadable: readonly Quarantined[]

  private constructor(context: DriverContext, lock: AsyncDisposable, unreadable: readonly Quarantined[]) {
    this.#context = context
    this.#lock = lock
    this.#unreadable = unreadable
  }

  /** Throws `unavailable` when a driver has the data directory. */
  static async open(options: OciDriverOptions): Promise<OfflineQuarantine> {
    const context = createContext(options)
    const lock = await lockHost(context.names)
    return new OfflineQuarantine(context, lock, await context.inventory.load())
  }

  get items(): readonly QuarantineItem[] {
    return this.#context.inventory.quarantine.items
  }

  /** Throws `conflict` with the reason why an item cannot be put in force again. */
  async assertRestorable(item: QuarantineItem): Promise<void> {
    await this.#context.inventory.recordToTakeBack(item)
  }

  async restore(item: QuarantineItem): Promise<void> {
    await this.#context.inventory.takeBack(item)
  }

  /** Removes items with their disks. Layers and memory without a reference go with the next start of a server. */
  async remove(items: readonly QuarantineItem[]): Promise<void> {
    const { names, runtime, pool, inventory, images } = this.#context
    for (const { id } of items) {
      const twin = this.#unreadable.find((record) => record.id === id)
      if (twin !== undefined) {
        throw new ServiceError('conflict', `the other record of ${id} cannot be read: start the server first`)
      }
    }
    await makeRunFolders(names, runtime.stateDir, await resolveHostTool(images.path))
    await pool.open()
    for (const item of items) await inventory.removeFromQuarantine(item)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await releaseHost(this.#context, this.#lock)
  }
}
