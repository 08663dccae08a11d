import { ServiceError } from '../../errors.ts'
import { lockName } from '../../lib/process-lock.ts'
import type { KnownResources, ReconcileReport, SandboxExit } from '../../sandbox/ports/runtime-driver.ts'
import type { DiskBounds } from '../cgroups/disk-rates.ts'
import { Cgroups } from '../cgroups/index.ts'
import { removeFolders } from '../cleanup.ts'
import { importsFolder } from '../disk/index.ts'
import type { Freezer } from '../disk/space-watch.ts'
import type { HostNames } from '../host-names.ts'
import { assemble, type DriverContext, type OpenHost } from './context.ts'
import { leaveFailedPool } from './failed-pool.ts'
import { removeFence } from './fence.ts'
import { resolveHostTool } from './image-folder.ts'
import { reconcile } from './reconcile.ts'
import { renumberCopies } from './renumber.ts'
import { makeRunFolders, removeRunFolders } from './run-folders.ts'
import { anyRuns, showLimits } from './running.ts'
import { removeMountRemains } from './step-mounts.ts'
import { assertPoolIsThere } from './strangers.ts'
import { treesDir } from './trees.ts'

/**
 * Prepares the host and reconciles it with the known sandboxes; a failure releases everything that is not needed. `onExit` is called for each
 * sandbox that ends by itself. Throws `unavailable` with what to do.
 */
export async function openHost(
  context: DriverContext,
  known: KnownResources,
  onExit: (exit: SandboxExit) => void,
): Promise<{ host: OpenHost; report: ReconcileReport }> {
  const { names, hostd, lxcfs, runtime, images, pool, space, network, egress, inventory, registries, log } = context
  const lock = await lockHost(names)
  try {
    const hostTool = await resolveHostTool(images.path)
    await makeRunFolders(names, runtime.stateDir, hostTool)
    const host = { ...context, ...(await assemble(context, hostTool, onExit)), lock }
    const { cgroups, work, templates, traits, running } = host
    await hostd.open(hostTool)
    // Before the first start: the runtime must see this mount, and then sees later mounts below it too.
    await lxcfs.ensure()
    if (!context.mayQuarantineMany) await assertPoolIsThere(names.dataDir)
    if (await pool.hasFailed()) await leaveFailedPool(host)
    await pool.open()
    traits.disk = await diskBounds(host)
    await space.open(pool.fileSystem, freezerOf(host))
    await templates.removeDraft()
    const { sandboxes } = inventory
    const report = await reconcile({
      ...host,
      known,
      adopt: (record) => running.adopt(record),
      stop: (id) => running.stop(id, sandboxes.get(id)?.slot),
    })
    await renumberCopies(host)
    await cgroups.limitProcesses(names.cgroupRoot)
    await cgroups.divideProcessors(names.cgroupRoot)
    const adopted = report.running.flatMap((id) => sandboxes.get(id) ?? [])
    const states = new Map(adopted.map((record) => [record.slot, egress.adopt(record)]))
    await network.open([...states.keys()], hostd, states)
    await egress.open()
    for (const id of report.running) await rejoin(host, id)
    // Downloads and unfinished layers that imports of a dead server have left.
    for (const name of await pool.list(importsFolder)) await pool.remove(`${importsFolder}/${name}`)
    await removeMountRemains(pool)
    await registries.removeSecrets()
    // Dumps of a dead server have been awaited by now.
    await work.remove()
    // Containers in which trees were read have ended with their groups.
    await removeFolders(hostd, [treesDir(names)])
    await inventory.removeExpired(context.quarantineKeptMs)
    await inventory.removeAllUnused()
    return { host, report }
  } catch (error) {
    await releaseHost(context, lock).catch((fault: unknown) => log(`releasing the host failed: ${String(fault)}`))
    throw error
  }
}

/** Absent where the kernel bounds no disks: sandboxes start without. */
async function diskBounds({ cgroups, names, pool, diskRates, log }: OpenHost): Promise<DiskBounds | undefined> {
  if (diskRates === undefined) return undefined
  const device = await pool.device()
  if (device !== undefined && (await cgroups.boundDisks(names.cgroupRoot))) return { device, rates: diskRates }
  log('the kernel does not bound what a sandbox reads and writes of the disk')
  return undefined
}

/** Makes this process the only driver of a data directory. Throws `unavailable` when another server has it. */
export async function lockHost({ hash, dataDir }: HostNames): Promise<AsyncDisposable> {
  const lock = await lockName(`atoll-${hash}`)
  if (lock !== undefined) return lock
  throw new ServiceError('unavailable', `another server runs on the data directory ${dataDir}`)
}

/** Removes what sandboxes share unless one still runs, then releases the data directory. */
export async function releaseHost(
  { names, hostd, lxcfs, runtime, network, egress, pool, space }: DriverContext,
  lock: AsyncDisposable,
): Promise<void> {
  try {
    await space.close()
    await egress.close()
    // Ask the runtime: an `open` that failed early has adopted nothing.
    if (await anyRuns(runtime)) return
    await network.close()
    await lxcfs.close()
    const cgroups = await Cgroups.find()
    for (const group of [names.cgroupRoot, names.workGroupRoot]) await cgroups.remove(group)
    await pool.close()
    await removeRunFolders(names)
  } finally {
    await hostd.close()
    await lock[Symbol.asyncDispose]()
  }
}

/**
 * Freezes running sandboxes, but none that is being ended, as a frozen process ignores SIGKILL. A sandbox that is being dumped is thawed
 * only after its dump.
 */
function freezerOf({ names, locks, running, cgroups, log }: OpenHost): Freezer {
  return {
    async freeze() {
      for (const id of running.runs.keys()) await cgroups.freeze(names.cgroup(id))
    },
    thaw() {
      for (const id of running.runs.keys()) {
        const thawed = locks.run(id, () => cgroups.thaw(names.cgroup(id)))
        thawed.catch((error: unknown) => log(`sandbox ${id} cannot be thawed: ${String(error)}`))
      }
    },
  }
}

/** Completes a start that a dead server had begun: the network and the limits of a running sandbox, and its record. */
async function rejoin(host: OpenHost, id: string): Promise<void> {
  const { inventory, running, egress, pool } = host
  const { memory, ...record } = inventory.sandbox(id)
  const process = running.runs.get(id)
  if (process === undefined) return
  if (memory === undefined && running.isVerified(id)) return
  await egress.attach(record, process, memory)
  await showLimits(host, record, process)
  if (memory !== undefined) {
    await inventory.sandboxes.put(record)
    await removeFence(pool, record)
  }
  await running.markVerified(id)
}
