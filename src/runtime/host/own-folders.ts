import { lstat } from 'node:fs/promises'
import { ServiceError } from '../../errors.ts'
import { unlessMissing } from '../../lib/missing-files.ts'

/** Folders on and in which the runtime mounts a sandbox's own file systems and files. */
const ownFolders = ['/dev', '/proc', '/sys', '/etc', '/.atoll']

/**
 * Throws `conflict` when one of these is no folder in a root that nobody uses yet. runc before 1.3.6 follows a link at `/dev` out of the root,
 * and removes and makes files there with the rights of the host (CVE-2026-41579). Images bring no such link, and a sandbox cannot move these
 * mount points; this check holds if somebody finds a way.
 */
export async function assertOwnFolders(root: string): Promise<void> {
  const found = await Promise.all(ownFolders.map((path) => lstat(root + path).catch(unlessMissing)))
  const wrong = ownFolders.filter((_, index) => found[index]?.isDirectory() === false)
  if (wrong.length === 0) return
  throw new ServiceError(
    'conflict',
    `the disk of the sandbox has no folder at ${wrong.join(', ')}, where the runtime mounts`,
  )
}
