import { readFile, statfs } from 'node:fs/promises'
import { ServiceError } from '../../errors.ts'
import { CommandError, run } from '../command.ts'
import type { Cgroups } from '../host/cgroups.ts'
import type { resourcesOf } from './container-config.ts'
import type { HostNames } from '../host/names.ts'
import type { ProcessIdentity } from '../host/process.ts'
import { runIsFull } from '../host/run-folders.ts'
import { runcCommand, runcFault } from './runc.ts'

const startTimeoutMs = 30_000
/** With less room than this on `/run` a start may have failed for the want of it: runc writes its state there. */
const startBytesMin = 64 * 1024

/**
 * Starts the container of a prepared bundle and returns its first process. runc ends when that runs, so nothing of the
 * container depends on this process; its standard streams are the sandbox's own /dev/null. Throws `unavailable` with the reason.
 */
export async function startContainer(names: HostNames, sandboxId: string): Promise<ProcessIdentity> {
  const folder = names.sandboxDir(sandboxId)
  const log = `${folder}/runc.log`
  try {
    // Without pipes, which the container would inherit and hold.
    await run(runcCommand(names, { log }, ['run', '--detach', '--bundle', folder, sandboxId]), {
      detached: true,
      timeoutMs: startTimeoutMs,
    })
  } catch (error) {
    const reason = (await runcFault(log, names)) || outcomeOf(error)
    if (await isFull(names.runDir)) throw runIsFull(error)
    throw new ServiceError('unavailable', `the sandbox cannot be started: ${reason}`, { cause: error })
  }
  const started = await findContainer(names, sandboxId)
  if (started === undefined) throw new Error(`runc has no state of sandbox ${sandboxId}`)
  return started
}

/** What became of a runc that had nothing to say. */
function outcomeOf(error: unknown): string {
  return error instanceof CommandError ? error.outcome : 'runc gave no reason'
}

/** runc wraps what it cannot write in words of its own, or has no room for them. */
async function isFull(folder: string): Promise<boolean> {
  const { bavail, bsize } = await statfs(folder)
  return bavail * bsize < startBytesMin
}

/** Changes the limits of a container that runs. Throws `conflict` when its processes hold more memory than the new limit. */
export async function updateContainer(
  names: HostNames,
  cgroups: Pick<Cgroups, 'heldBytes'>,
  sandboxId: string,
  resources: ReturnType<typeof resourcesOf>,
): Promise<void> {
  const heldBytes = await cgroups.heldBytes(names.cgroup(sandboxId))
  if (heldBytes !== undefined && heldBytes > resources.memory.limit) throw heldTooMuch()
  const input = JSON.stringify(resources)
  await run(runcCommand(names, {}, ['update', '--resources', '-', sandboxId]), { input }).catch((error: unknown) => {
    if (!(error instanceof CommandError) || !/busy|memory/i.test(error.stderr)) throw error
    throw heldTooMuch(error)
  })
}

function heldTooMuch(cause?: unknown): ServiceError {
  return new ServiceError('conflict', 'the processes of the sandbox hold more memory than that', { cause })
}

/** The first process of a container as runc recorded it, whether it still runs or not. */
export async function findContainer(
  names: Pick<HostNames, 'runcRoot'>,
  sandboxId: string,
): Promise<ProcessIdentity | undefined> {
  try {
    const state = JSON.parse(await readFile(`${names.runcRoot}/${sandboxId}/state.json`, 'utf8')) as {
      init_process_pid?: number
      init_process_start?: number
    }
    const { init_process_pid: pid, init_process_start: startTicks } = state
    return pid !== undefined && pid > 1 && startTicks !== undefined ? { pid, startTicks } : undefined
  } catch {
    return undefined
  }
}
