import { ServiceError } from '../../errors.ts'
import { createContext, type OciDriverOptions } from './context.ts'
import { resolveHostTool } from './image-folder.ts'
import { lockHost, releaseHost } from './open-host.ts'
import type { QuarantineItem } from './quarantine.ts'
import { makeRunFolders } from './run-folders.ts'

export type OfflineQuarantine = Awaited<ReturnType<typeof openOfflineQuarantine>>

/** The quarantine of a data directory, whose sandboxes may run meanwhile. Throws `unavailable` when a driver has it open. */
export async function openOfflineQuarantine(options: OciDriverOptions) {
  const context = createContext(options)
  const { names, runtime, hostd, pool, inventory, images } = context
  const lock = await lockHost(names)
  // Their disks are unknown.
  const unreadable = new Set((await inventory.load()).map(({ id }) => id))
  return {
    get items(): readonly QuarantineItem[] {
      return inventory.quarantine.items
    },

    /** Throws `conflict` with the reason why an item cannot be put in force again. */
    async assertRestorable(item: QuarantineItem): Promise<void> {
      await inventory.recordToTakeBack(item)
    },

    restore: (item: QuarantineItem) => inventory.takeBack(item),

    /** Removes items with their disks. Layers and memory without a reference go with the next start of a server. */
    async remove(items: readonly QuarantineItem[]): Promise<void> {
      const twin = items.find(({ id }) => unreadable.has(id))
      if (twin !== undefined) {
        throw new ServiceError('conflict', `the other record of ${twin.id} cannot be read: start the server first`)
      }
      const hostTool = await resolveHostTool(images.path)
      await makeRunFolders(names, runtime.stateDir, hostTool)
      await hostd.open(hostTool)
      await pool.open()
      for (const item of items) await inventory.removeFromQuarantine(item)
    },

    [Symbol.asyncDispose]: () => releaseHost(context, lock),
  }
}
