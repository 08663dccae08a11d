import { ServiceError } from '../../errors.ts'
import type { KnownResources, ReconcileReport } from '../../sandbox/ports/runtime-driver.ts'
import { findCriu } from '../criu/program.ts'
import type { CriuProgram } from '../criu/program.ts'
import { allowUserfaultfd } from '../criu/userfaultfd.ts'
import { seedFolder, Seeds } from '../disk/index.ts'
import type { BundleHost } from './bundle.ts'
import { Cgroups } from './cgroups.ts'
import { removeExpired } from './expiry.ts'
import { findTraits, makeRunFolders, removeRunFolders } from './run-folders.ts'
import { nameImages, resolveHostTool } from './image-folder.ts'
import { rememberLowers } from '../disk/overlay-origins.ts'
import { lockDataDir } from './lock.ts'
import type { Parts } from './context.ts'
import { reconcile } from './reconcile.ts'
import { renumberCopies } from '../disk/renumber-copies.ts'
import { removeMark } from '../criu/fence.ts'
import { anyRuns } from './running.ts'
import { assertPoolIsThere } from './strangers.ts'

/** What is known of the host while the driver is open, and what keeps others from its data. */
export interface OpenHost {
  bundles: BundleHost
  cgroups: Cgroups
  criu: CriuProgram
  lock: AsyncDisposable
}

/**
 * Prepares the host and brings it in line with what is known; a failure lets go of everything that nothing needs.
 * Throws `unavailable` with what to do.
 */
export async function openHost(
  parts: Parts,
  known: KnownResources,
): Promise<{ opened: OpenHost; report: ReconcileReport }> {
  const { names, hostd, pool, network, inventory, running } = parts
  const lock = await lockDataDir(names)
  try {
    const hostTool = await resolveHostTool(parts.images.path)
    await makeRunFolders(names, hostTool)
    const [cgroups, criu] = await Promise.all([Cgroups.find(), criuOf(parts)])
    const bundles: BundleHost = {
      names,
      images: parts.images,
      pool,
      seeds: new Seeds(pool.path(seedFolder), hostd, parts.log),
      subnet: network.subnet,
      traits: await findTraits(cgroups, parts.log),
      hostd,
    }
    await hostd.open(hostTool)
    if (!parts.mayQuarantineMany) await assertPoolIsThere(names.dataDir)
    await pool.open()
    const { sandboxes } = inventory
    const report = await reconcile({
      names,
      hostd,
      pool,
      cgroups,
      inventory,
      known,
      mayQuarantineMany: parts.mayQuarantineMany,
      adopt: (record) => running.adopt(cgroups, record),
      stop: (id) => running.stop(cgroups, id, sandboxes.get(id)?.slot),
      log: parts.log,
    })
    await nameImages(inventory, parts.images, (record) => rememberLowers(bundles, record), parts.log)
    const { seeds } = bundles
    await renumberCopies({ pool, seeds, inventory, hostd, names, log: parts.log })
    await cgroups.limitProcesses(names.cgroupRoot)
    const slots = report.running.flatMap((id) => sandboxes.get(id)?.slot ?? [])
    await network.open(slots, hostd)
    for (const id of report.running) await rejoin(parts, id)
    await removeExpired(parts)
    await inventory.removeAllUnused()
    return { opened: { bundles, cgroups, criu, lock }, report }
  } catch (error) {
    await releaseHost(parts, lock).catch((fault: unknown) =>
      parts.log(`letting go of the host failed: ${String(fault)}`),
    )
    throw error
  }
}

/** Shared things of the host go when no sandbox needs them; then others may have the data. */
export async function releaseHost(
  { names, hostd, network, pool, running }: Parts,
  lock: AsyncDisposable,
): Promise<void> {
  try {
    // Not only what was adopted: an `open` that failed early has adopted nothing.
    if (await anyRuns(names)) return
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

async function criuOf({ images, lazy, log }: Parts): Promise<CriuProgram> {
  const criu = await findCriu(images.path)
  if (criu.path === undefined || !criu.lazyPages.ok || !lazy.isWanted || (await allowUserfaultfd(log))) return criu
  return { ...criu, lazyPages: { ok: false, reason: 'the kernel refuses userfaultfd' } }
}

/** Path of the program that saves memory. Throws `full_checkpoint_unavailable` where there is none that works. */
export function demandCriu({ criu }: OpenHost): string {
  if (criu.path !== undefined) return criu.path
  throw new ServiceError('full_checkpoint_unavailable', criu.reason)
}

/** Completes what a server that died had not: the network of a sandbox that runs, and its record. */
async function rejoin({ inventory, running, network, pool }: Parts, id: string): Promise<void> {
  const { memory, ...record } = inventory.sandbox(id)
  const process = running.runs.get(id)
  if (process === undefined) return
  if (memory === undefined && (await running.isTrusted(id))) return
  await network.attach(record.slot, process, memory)
  if (memory !== undefined) {
    await inventory.sandboxes.put(record)
    await removeMark(pool, record)
  }
  await running.trust(id)
}
