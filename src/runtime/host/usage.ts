import type { SandboxUsage } from '../../sandbox/ports/runtime-driver.ts'
import { diskOf } from '../disk/index.ts'
import type { OpenHost } from './context.ts'

/** See `RuntimeDriver.usage`. */
export async function usageOf(
  { inventory, running, pool, cgroups, names, network, limitFiles }: OpenHost,
  sandboxId: string,
): Promise<SandboxUsage | undefined> {
  const record = inventory.sandboxes.get(sandboxId)
  if (record === undefined || !running.isUp(sandboxId)) return undefined
  const diskBytes = await pool.countedBytes(diskOf(record))
  if (diskBytes !== undefined) await limitFiles.writeDiskUse(sandboxId, diskBytes)
  const usage = cgroups.usage(names.cgroup(sandboxId))
  const traffic = network.traffic(record.slot)
  // It may have ended meanwhile, and its slot may have another owner.
  if (usage === undefined || traffic === undefined || !running.isUp(sandboxId)) return undefined
  return { ...usage, diskBytes, networkReceivedBytes: traffic.receivedBytes, networkSentBytes: traffic.sentBytes }
}
