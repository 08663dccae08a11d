import { exists } from '../exists.ts'
import type { HostTool } from '../hostd/index.ts'

/** Gigabytes of saved memory take their time. */
const removeTimeoutMs = 300_000

/**
 * Removes folders and first what is mounted at or in them: runc and CRIU leave mounts of a sandbox's root when a restore is cut
 * off. Harmless when there is nothing.
 */
export async function removeFolders(hostd: HostTool, folders: readonly string[]): Promise<void> {
  const areThere = await Promise.all(folders.map(exists))
  const args = folders.filter((_, index) => areThere[index]).flatMap((folder) => ['--dir', folder])
  if (args.length > 0) await hostd.runTool(['remove', ...args], { timeoutMs: removeTimeoutMs })
}
