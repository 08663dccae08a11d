import { diskOf, limitDisk } from '../host/bundle.ts'
import type { BundleHost } from '../host/bundle.ts'
import type { DriverContext } from '../host/context.ts'
import type { SandboxRecord } from '../host/records.ts'
import { cleanUp } from '../host/cleanup.ts'

/**
 * Replaces a disk that a process of the host holds, in the root of the sandbox or in its mount namespace, by a snapshot: overlay
 * refuses to mount one upper layer twice. Inode numbers and limit stay. Returns the record in force. The old disk is removed;
 * its space comes back when its last holder ends.
 */
export async function moveDisk(
  context: DriverContext,
  host: BundleHost,
  record: SandboxRecord,
  diskMb: number,
): Promise<SandboxRecord> {
  const { inventory, pool, log } = context
  const moved: SandboxRecord = { ...record, disk: await inventory.nextDisk(record) }
  try {
    await pool.copySubvolume(diskOf(record), diskOf(moved))
    await host.hostd.runTool(['adopt-index', '--work', pool.path(`${diskOf(moved)}/work`)])
    await limitDisk(host, moved, diskMb)
    await inventory.sandboxes.put(moved)
  } catch (error) {
    await cleanUp(context, record.id, () => pool.remove(diskOf(moved)))
    throw error
  }
  log(`someone on the host holds the root that sandbox ${record.id} had: it goes on with a copy of its disk`)
  await cleanUp(context, record.id, () => pool.remove(diskOf(record)))
  return moved
}
