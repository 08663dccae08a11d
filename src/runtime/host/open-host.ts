import { ServiceError } from '../../errors.ts'
import type { KnownResources, ReconcileReport } from '../../sandbox/ports/runtime-driver.ts'
import { findCriu, type CriuProgram } from '../criu/program.ts'
import { allowUserfaultfd } from '../criu/userfaultfd.ts'
import { templatesFolder, InodeTemplates } from '../disk/index.ts'
import type { BundleHost } from './bundle.ts'
import { Cgroups } from '../cgroups/index.ts'
import { findTraits, makeRunFolders, removeRunFolders } from './run-folders.ts'
import { nameImages, resolveHostTool } from './image-folder.ts'
import { noteCurrentLowers } from '../disk/overlay-origins.ts'
import { lockName } from '../../lib/process-lock.ts'
import type { HostNames } from '../host-names.ts'
import type { DriverContext } from './context.ts'
import { reconcile } from './reconcile.ts'
import { renumberCopies } from '../disk/renumber.ts'
import { removeFence } from './fence.ts'
import { anyRuns } from './running.ts'
import { assertPoolIsThere } from './strangers.ts'

/** State that exists while the driver is open. */
export interface OpenHost {
  bundles: BundleHost
  cgroups: Cgroups
  criu: CriuProgram
  lock: AsyncDisposable
}

/**
 * Prepares the host and reconciles it with the known sandboxes; a failure releases everything that is not needed.
 * Throws `unavailable` with what to do.
 */
export async function openHost(
  context: DriverContext,
  known: KnownResources,
): Promise<{ opened: OpenHost; report: ReconcileReport }> {
  const { names, hostd, runtime, pool, network, inventory, running } = context
  const lock = await lockHost(names)
  try {
    const hostTool = await resolveHostTool(context.images.path)
    await makeRunFolders(names, runtime.stateDir, hostTool)
    const [cgroups, criu] = await Promise.all([Cgroups.find(), criuOf(context)])
    const bundles: BundleHost = {
      names,
      images: context.images,
      pool,
      templates: new InodeTemplates(pool.path(templatesFolder), hostd, context.log),
      subnet: network.subnet,
      traits: await findTraits(cgroups, context.log),
      hostd,
      runtime,
    }
    await hostd.open(hostTool)
    if (!context.mayQuarantineMany) await assertPoolIsThere(names.dataDir)
    await pool.open()
    const { sandboxes } = inventory
    const report = await reconcile({
      names,
      hostd,
      runtime,
      pool,
      cgroups,
      inventory,
      known,
      mayQuarantineMany: context.mayQuarantineMany,
      adopt: (record) => running.adopt(cgroups, record),
      stop: (id) => running.stop(cgroups, id, sandboxes.get(id)?.slot),
      log: context.log,
    })
    await nameImages(inventory, context.images, (record) => noteCurrentLowers(bundles, record), context.log)
    const { templates } = bundles
    await renumberCopies({ pool, templates, inventory, hostd, names, log: context.log })
    await cgroups.limitProcesses(names.cgroupRoot)
    const slots = report.running.flatMap((id) => sandboxes.get(id)?.slot ?? [])
    await network.open(slots, hostd)
    for (const id of report.running) await rejoin(context, id)
    await inventory.removeExpired(context.quarantineKeptMs)
    await inventory.removeAllUnused()
    return { opened: { bundles, cgroups, criu, lock }, report }
  } catch (error) {
    await releaseHost(context, lock).catch((fault: unknown) =>
      context.log(`releasing the host failed: ${String(fault)}`),
    )
    throw error
  }
}

/** Makes this process the only driver of a data directory. Throws `unavailable` when another server has it. */
export async function lockHost({ hash, dataDir }: HostNames): Promise<AsyncDisposable> {
  const lock = await lockName(`atoll-${hash}`)
  if (lock !== undefined) return lock
  throw new ServiceError('unavailable', `another server runs on the data directory ${dataDir}`)
}

/** Removes what sandboxes share unless one still runs, then releases the data directory. */
export async function releaseHost(
  { names, hostd, runtime, network, pool, running }: DriverContext,
  lock: AsyncDisposable,
): Promise<void> {
  try {
    // Asks the runtime, since an `open` that failed early has adopted nothing.
    if (await anyRuns(runtime)) return
    await network.close()
    await (await Cgroups.find()).remove(names.cgroupRoot)
    await pool.close()
    await removeRunFolders(names)
  } finally {
    running.forget()
    await hostd.close()
    await lock[Symbol.asyncDispose]()
  }
}

async function criuOf({ runtime, images, lazy, log }: DriverContext): Promise<CriuProgram> {
  if (!runtime.canCheckpoint) return { path: undefined, reason: `the runtime ${runtime.name} saves no memory` }
  const criu = await findCriu(images.path)
  if (criu.path === undefined || !criu.lazyPages.ok || !lazy.isWanted || (await allowUserfaultfd(log))) return criu
  return { ...criu, lazyPages: { ok: false, reason: 'the kernel refuses userfaultfd' } }
}

/** Path of CRIU. Throws `full_checkpoint_unavailable` where none works. */
export function assertCriu({ criu }: OpenHost): string {
  if (criu.path !== undefined) return criu.path
  throw new ServiceError('full_checkpoint_unavailable', criu.reason)
}

/** Completes a restore that a dead server had begun: the network of a running sandbox, and its record. */
async function rejoin({ inventory, running, network, pool }: DriverContext, id: string): Promise<void> {
  const { memory, ...record } = inventory.sandbox(id)
  const process = running.runs.get(id)
  if (process === undefined) return
  if (memory === undefined && (await running.isVerified(id))) return
  await network.attach(record.slot, process, memory)
  if (memory !== undefined) {
    await inventory.sandboxes.put(record)
    await removeFence(pool, record)
  }
  await running.markVerified(id)
}
