import { rm } from 'node:fs/promises'
import { unmountBelow } from '../disk/index.ts'

/**
 * Removes a folder and first what is mounted in it: to remove files through a mount would be to remove those of a sandbox,
 * and runc and CRIU leave mounts when a restore is cut off. Harmless when there is nothing.
 */
export async function removeFolder(folder: string): Promise<void> {
  await unmountBelow(folder)
  await rm(folder, { recursive: true, force: true })
}
