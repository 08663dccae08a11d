import { dirname } from 'node:path'
import { ServiceError } from '../../errors.ts'
import type { HostTool } from '../hostd/index.ts'
import type { Cgroups } from '../host/cgroups.ts'
import { endStrayTools } from '../host/strays.ts'

/** Longer than all attempts of `hostd/src/process/freeze.rs`. */
const freezeTimeoutMs = 60_000

/**
 * Freezes a sandbox where CRIU can take hold of all that runs in it; the caller thaws, after a failure too. Throws `conflict`
 * when no such moment comes within a second or so: a dump would wait for one and hold the sandbox meanwhile.
 */
export async function freezeForDump(
  hostd: HostTool,
  cgroups: Pick<Cgroups, 'memberFiles'>,
  group: string,
): Promise<void> {
  const folders = cgroups.memberFiles(group).map(dirname)
  const args = folders.flatMap((folder) => ['--group', folder])
  const met = await hostd.runTool(['freeze', ...args], { timeoutMs: freezeTimeoutMs }).catch(async (error: unknown) => {
    // One whose launcher has ended goes on, and would freeze the sandbox when nobody thaws it any more.
    await endStrayTools(hostd, folders)
    throw error
  })
  if (met.trim() === 'frozen') return
  const reason = 'one of its processes has borrowed its memory to a child (vfork) and does not get it back'
  throw new ServiceError('conflict', `the memory of the sandbox cannot be saved: ${reason}`)
}
