import { readdir } from 'node:fs/promises'
import { endCriu, endStrayTools } from '../cleanup.ts'
import type { Machine } from './machine.ts'
import type { RunningSandboxes } from './running.ts'

interface FailedHost extends Pick<Machine, 'names' | 'hostd' | 'runtime' | 'pool' | 'log'> {
  running: RunningSandboxes
}

/**
 * Ends all sandboxes of a pool that a disk error has made read-only, and unmounts it: only a new mount can be written, which needs the end of
 * the old one. Disks are then as btrfs has last committed them. Throws `unavailable`.
 */
export async function leaveFailedPool({ names, hostd, runtime, pool, running, log }: FailedHost): Promise<void> {
  // Some may have been cut off before the runtime knew them, some after it forgot them.
  const ids = new Set([...(await runtime.list()), ...(await readdir(names.sandboxesDir))])
  log(
    `the disk pool has become read-only after an error of the disk: it is mounted anew, and ${ids.size} sandboxes end for that`,
  )
  await endStrayTools(hostd, [names.runDir, names.poolFile])
  await endCriu(hostd, [names.runDir])
  for (const id of ids) await running.stop(id, undefined)
  await pool.abandon()
}
