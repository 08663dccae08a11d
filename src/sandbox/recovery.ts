import { ServiceError } from '../errors.ts'
import { alignMachine } from './alignment.ts'
import { type Checkpoint, newCheckpoint } from './checkpoint-records.ts'
import type { Lifecycle, LifecycleContext } from './lifecycle.ts'
import type { QuarantineReason, ReconcileReport } from './ports/runtime-driver.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'
import { type Sandbox, type SandboxStatus, newSandbox, runningNow } from './sandbox.ts'
import { recoverVolumes } from './volume.ts'

interface RecoveryContext extends Pick<LifecycleContext, 'store' | 'driver' | 'meter' | 'log'> {
  lifecycle: Lifecycle
}

/**
 * Reconciles records and machines after a start. Records say what should exist, machines what does:
 *
 * | record     | machine runs | only its disk is left               | nothing is left | its host does not answer |
 * |------------|--------------|-------------------------------------|-----------------|--------------------------|
 * | creating   | an interrupted start: the machine is removed, the record becomes `error`, `runtime_failed` ||||
 * | running    | adopted, and brought to its record by `alignment.ts` | `hibernated`, reason `host_lost` without memory | `error`, `host_lost` | unchanged |
 * | hibernated | hibernated, or adopted when that is refused; no reason | unchanged; `host_lost` when its memory is lost | `error`, `host_lost` | unchanged |
 * | error, `host_lost` | –    | `hibernated`, reason `host_lost`    | unchanged       | unchanged                |
 *
 * Interrupted dumps become `failed`; those of a cold wake are removed, since no client has asked for them. The driver removes remains of
 * interrupted starts, dumps and deletions, and quarantines data that no record names. A failed checkpoint that was `ready` and whose data
 * are back is `ready` again.
 */
export async function recover(context: RecoveryContext): Promise<void> {
  const { store, driver, log } = context
  const interrupted = await store.sandboxesIn(['creating'])
  const known = await store.sandboxesIn(['running', 'hibernated', 'error'])
  const dumping = await store.checkpointsIn('processing')
  const dumpingIds = new Set(dumping.map((checkpoint) => checkpoint.id))
  const checkpointIds = (await store.checkpointIds()).filter((id) => !dumpingIds.has(id))
  const deleted = await store.deletedCheckpointIds()
  const abandoned = {
    sandboxIds: [...interrupted.map((sandbox) => sandbox.id), ...(await store.stoppedSandboxIds())],
    checkpointIds: [...dumpingIds, ...deleted],
    volumeIds: await store.volumeRemains(),
  }
  const volumeIds = await store.volumeIds()

  const report = await driver.open({
    sandboxIds: known.map((sandbox) => sandbox.id),
    checkpointIds,
    volumeIds,
    abandoned,
  })

  await store.forgetCheckpoints(deleted)
  await recoverVolumes(context)
  await settleCheckpoints(context, report)
  for (const checkpoint of dumping) await settleDump(store, checkpoint)
  for (const sandbox of interrupted) {
    const reasonMessage = 'the server stopped while the sandbox started'
    await context.lifecycle.set(sandbox.id, { status: 'error', reason: 'runtime_failed', reasonMessage })
  }
  for (const sandbox of known) await settle(context, sandbox, report)

  const { running, dormant, forgotten, lost, unreachable, removed, quarantined, takenBack } = report
  const counts = { adopted: running.length, dormant: dormant.length, interrupted: interrupted.length }
  log.info({ ...counts, forgotten, lost, unreachable, removed, takenBack }, 'records and machines are reconciled')
  const { lostVolumes, unknownVolumes } = report
  if (lostVolumes.length > 0) log.warn({ lostVolumes }, 'the data of these volumes is not on this host')
  if (unknownVolumes.length > 0) log.warn({ unknownVolumes }, 'no record knows these volumes; they stay on this host')
  if (quarantined.length > 0)
    log.warn({ quarantined }, 'records were moved to quarantine; npm run quarantine lists them')
}

async function settleDump(store: SandboxStore, checkpoint: Checkpoint): Promise<void> {
  const { id, owner } = checkpoint
  if (owner !== 'wake') {
    await store.updateCheckpoint(id, { status: 'failed', error: 'the server stopped meanwhile' })
    return
  }
  await store.deleteCheckpoint(id)
  await store.forgetCheckpoints([id])
}

/** A failed checkpoint keeps its first error, also when its data are missing again. */
async function settleCheckpoints({ store }: RecoveryContext, report: ReconcileReport): Promise<void> {
  for (const id of report.lostCheckpoints) {
    if ((await store.checkpoint(id))?.status !== 'ready') continue
    const error = quarantineMessage(report, 'checkpoint', id) ?? 'its data is no longer on this host'
    await store.updateCheckpoint(id, { status: 'failed', error })
  }
  // An earlier start may have ended when its data were back and its record not. One that was never ready has no size.
  for (const { id, sizeBytes } of await store.checkpointsIn('failed')) {
    if (sizeBytes > 0 && !report.lostCheckpoints.includes(id)) await store.updateCheckpoint(id, readyAgain)
  }
}

const quarantineMessages: Record<QuarantineReason, string> = {
  unknown: 'it is in quarantine',
  unreadable: 'its record cannot be read; its disk is in quarantine',
  unrecorded: 'its record is gone; its disk is in quarantine',
  damaged: 'its disk or memory is not whole; what is left of it is in quarantine',
}

function quarantineMessage(
  report: ReconcileReport,
  kind: 'sandbox' | 'checkpoint',
  lostId: string,
): string | undefined {
  const found = report.quarantined.find((item) => item.kind === kind && item.id === lostId)
  if (found?.fault !== undefined) return `its record cannot be read (${found.fault}); its disk is in quarantine`
  return found && quarantineMessages[found.reason]
}

async function settle(context: RecoveryContext, sandbox: Sandbox, report: ReconcileReport): Promise<void> {
  const { store, lifecycle, driver, meter, log } = context
  const { id, status } = sandbox
  if (report.unreachable.includes(id)) return
  if (status === 'error') {
    if (sandbox.reason === 'host_lost' && report.dormant.includes(id)) await hibernateReturned(store, id)
  } else if (report.lost.includes(id)) {
    const reasonMessage = quarantineMessage(report, 'sandbox', id) ?? 'its disk is no longer on this host'
    await lifecycle.set(id, { status: 'error', reason: 'host_lost', reasonMessage })
    if (status === 'running') await meter?.closeLost(id)
  } else if (status === 'running' && report.running.includes(id)) {
    await alignMachine(context, sandbox)
    lifecycle.clocks.start(id, sandbox.timeoutSeconds)
  } else if (status === 'running' && driver.hasMemory(id)) {
    // The crash came in a hibernation, or in a restore that saves the present first.
    await lifecycle.set(id, { status: 'hibernated', ...noReason })
    await meter?.closeLost(id)
  } else if (status === 'running') {
    const reasonMessage =
      'its processes ended with the host; what was synced is on its disk, and the next operation starts it again'
    await lifecycle.set(id, { status: 'hibernated', reason: 'host_lost', reasonMessage })
    await meter?.closeLost(id)
  } else if (report.running.includes(id)) {
    // The crash came between the wake of the machine and its record. The record decides, but not why another memory was refused.
    try {
      await driver.hibernate(id)
      await lifecycle.change(id, noReason)
    } catch (error) {
      log.warn({ err: error, sandboxId: id }, 'a sandbox that should hibernate cannot, and runs on')
      await alignMachine(context, sandbox)
      await lifecycle.set(id, runningNow())
    }
  } else if (report.forgotten.includes(id)) {
    const reasonMessage =
      'the host went down before its memory was safe; what was synced is on its disk, and the next operation starts it anew'
    await lifecycle.change(id, { reason: 'host_lost', reasonMessage })
  } else if (sandbox.reason === 'memory_not_restorable' && !driver.hasMemory(id)) {
    // The crash came in a start from its disk.
    await lifecycle.change(id, noReason)
  }
}

/** Records a sandbox whose disk is back from quarantine; an unknown one gets default sizes. Throws `conflict` for a deleted one. */
export async function readmitSandbox(store: SandboxStore, orgId: string, id: string): Promise<SandboxStatus> {
  const known = await store.sandbox(id)
  if (known?.status === 'stopped') throw new ServiceError('conflict', `sandbox ${id} was deleted`)
  if (known === undefined) await store.insertSandbox({ ...newSandbox(orgId, { id }), status: 'hibernated' })
  else if (known.reason === 'host_lost') await hibernateReturned(store, id)
  return (await store.sandbox(id))?.status ?? 'hibernated'
}

/** A sandbox in `error` because its disk was missing hibernates again. */
async function hibernateReturned(store: SandboxStore, id: string): Promise<void> {
  const reasonMessage = 'its disk was gone and is back; the next operation starts it again'
  await store.updateSandbox(id, { status: 'hibernated', reasonMessage }, ['error'])
}

const noReason = { reason: undefined, reasonMessage: undefined } as const
const readyAgain = { status: 'ready', error: undefined } as const

/** Records a checkpoint that is back from quarantine. Without a known source it gets the id of a sandbox that does not exist. */
export async function readmitCheckpoint(
  store: SandboxStore,
  orgId: string,
  { id, kind, sizeBytes, sandboxId }: Pick<Checkpoint, 'id' | 'kind' | 'sizeBytes'> & { sandboxId?: string },
): Promise<Checkpoint> {
  const known = await store.checkpoint(id)
  if (known?.status === 'failed') return (await store.updateCheckpoint(id, readyAgain)) ?? known
  if (known !== undefined) return known
  const source = newSandbox(orgId, { id: sandboxId })
  const made = newCheckpoint(source, { id, name: `restored-${id}`, kind })
  const checkpoint: Checkpoint = { ...made, status: 'ready', sizeBytes }
  await store.insertCheckpoint(checkpoint)
  return checkpoint
}

/**
 * Deletes records of stopped sandboxes. Their driver deletion may have failed and a machine without a row is unknown to the next start,
 * so each machine is deleted again first; a failure keeps the row.
 */
export async function purgeSandboxes(
  { store, driver, log }: Omit<RecoveryContext, 'lifecycle'>,
  stoppedBefore: Date,
  signal: AbortSignal,
): Promise<void> {
  const gone: string[] = []
  for (const id of await store.stoppedSandboxIds(stoppedBefore)) {
    if (signal.aborted) break
    try {
      await driver.delete(id)
      gone.push(id)
    } catch (error) {
      log.warn({ err: error, sandboxId: id }, 'remains of a stopped sandbox cannot be removed')
    }
  }
  if (gone.length > 0) await store.purgeSandboxes(gone)
}
