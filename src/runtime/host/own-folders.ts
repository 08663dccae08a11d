import { lstat } from 'node:fs/promises'
import { ServiceError } from '../../errors.ts'
import { unlessMissing } from '../exists.ts'

/** On and in which the runtime mounts what each sandbox has of its own. */
const ownFolders = ['/dev', '/proc', '/sys', '/etc', '/.atoll']

/**
 * Throws `conflict` when one of these is no folder in a root that nobody uses yet. runc before 1.3.6 follows a link at `/dev` out of the root,
 * and removes and makes files there with the rights of the host (CVE-2026-41579). Images bring none, and inside they are mount points, which
 * cannot be moved; this holds if somebody finds a way.
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
