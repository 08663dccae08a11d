import type { Log } from '../lib/log.ts'
import type { QuarantineReason, ReconcileReport, RuntimeDriver } from './ports/runtime-driver.ts'
import type { Lifecycle } from './lifecycle.ts'
import { hibernateReturned } from './readmission.ts'
import type { Sandbox } from './sandbox.ts'
import type { SandboxStore } from './ports/sandbox-store.ts'

interface RecoveryDeps {
  store: SandboxStore
  driver: RuntimeDriver
  lifecycle: Lifecycle
  log: Log
}

/**
 * Brings records and machines in line after a start. Records are the truth about what should exist, machines about what
 * does:
 *
 * | record     | machine runs | only its disk is left               | nothing is left |
 * |------------|--------------|-------------------------------------|-----------------|
 * | creating   | a start was cut off: the machine goes, the record says `runtime_failed` in `error` |||
 * | running    | adopted      | `hibernated`, reason `host_lost`    | `error`, `host_lost` |
 * | hibernated | put to sleep, or adopted where that is refused | stays; `host_lost` when its memory is given up | `error`, `host_lost` |
 * | error, `host_lost` | –    | `hibernated`, reason `host_lost`    | stays           |
 *
 * Dumps that were cut off have failed. What a start, a dump or a deletion that was cut off has left is removed by the driver;
 * what no record names at all goes to quarantine. A failed checkpoint that is back from there is ready again.
 */
export async function recover(deps: RecoveryDeps): Promise<void> {
  const { store, driver, log } = deps
  const cutOff = await store.sandboxesIn(['creating'])
  const known = await store.sandboxesIn(['running', 'hibernated', 'error'])
  const dumping = await store.checkpointsIn('processing')
  const dumpingIds = new Set(dumping.map((checkpoint) => checkpoint.id))
  const checkpointIds = (await store.checkpointIds()).filter((id) => !dumpingIds.has(id))
  const deleted = await store.deletedCheckpointIds()
  const abandoned = {
    sandboxIds: [...cutOff.map((sandbox) => sandbox.id), ...(await store.stoppedSandboxIds())],
    checkpointIds: [...dumpingIds, ...deleted],
  }

  const report = await driver.open({ sandboxIds: known.map((sandbox) => sandbox.id), checkpointIds, abandoned })

  await store.forgetCheckpoints(deleted)
  for (const { id } of dumping)
    await store.updateCheckpoint(id, { status: 'failed', error: 'the server stopped meanwhile' })
  await settleCheckpoints(deps, report)
  for (const sandbox of cutOff) {
    const reasonMessage = 'the server stopped while the sandbox started'
    await deps.lifecycle.found(sandbox.id, { status: 'error', reason: 'runtime_failed', reasonMessage })
  }
  for (const sandbox of known) await settle(deps, sandbox, report)

  const { running, dormant, forgotten, lost, removed, quarantined, takenBack } = report
  log.info(
    { adopted: running.length, dormant: dormant.length, forgotten, lost, removed, takenBack, cutOff: cutOff.length },
    'records and machines are in line',
  )
  if (quarantined.length > 0)
    log.warn({ quarantined }, 'records were moved to quarantine; npm run quarantine lists them')
}

/** Why a checkpoint failed stays what it was, also when its data are looked for in vain again. */
async function settleCheckpoints({ store }: RecoveryDeps, report: ReconcileReport): Promise<void> {
  for (const id of report.lostCheckpoints) {
    if ((await store.checkpoint(id))?.status !== 'ready') continue
    const error = inQuarantine(report, 'checkpoint', id) ?? 'its data is no longer on this host'
    await store.updateCheckpoint(id, { status: 'failed', error })
  }
  for (const id of report.takenBack) {
    if ((await store.checkpoint(id))?.status === 'failed') {
      await store.updateCheckpoint(id, { status: 'ready', error: undefined })
    }
  }
}

const whyLost: Record<QuarantineReason, string> = {
  unknown: 'it is in quarantine',
  unreadable: 'its record cannot be read; its disk is in quarantine',
  unrecorded: 'its record is gone; its disk is in quarantine',
  damaged: 'its disk or memory is not whole; what is left of it is in quarantine',
}

function inQuarantine(report: ReconcileReport, kind: 'sandbox' | 'checkpoint', lostId: string): string | undefined {
  const found = report.quarantined.find((item) => item.kind === kind && item.id === lostId)
  return found && whyLost[found.reason]
}

async function settle(
  { store, lifecycle, driver, log }: RecoveryDeps,
  sandbox: Sandbox,
  report: ReconcileReport,
): Promise<void> {
  const { id, status } = sandbox
  if (status === 'error') {
    if (sandbox.reason === 'host_lost' && report.dormant.includes(id)) await hibernateReturned(store, id)
  } else if (report.lost.includes(id)) {
    const reasonMessage = inQuarantine(report, 'sandbox', id) ?? 'its disk is no longer on this host'
    await lifecycle.found(id, { status: 'error', reason: 'host_lost', reasonMessage })
  } else if (status === 'running' && report.running.includes(id)) {
    lifecycle.adopt(sandbox)
  } else if (status === 'running') {
    const reasonMessage = 'its processes ended with the host; the disk is whole and the next operation starts it again'
    await lifecycle.found(id, { status: 'hibernated', reason: 'host_lost', reasonMessage })
  } else if (report.running.includes(id)) {
    // The crash came between the machine's wake and the record of it: the record decides.
    await driver.hibernate(id).catch(async (error: unknown) => {
      log.warn({ err: error, sandboxId: id }, 'a sandbox that should hibernate cannot, and runs on')
      await lifecycle.found(id, { status: 'running', startedAt: new Date() })
    })
  } else if (report.forgotten.includes(id)) {
    const reasonMessage =
      'the host went down before its memory was safe; the disk is whole and the next operation starts it anew'
    await lifecycle.change(id, { reason: 'host_lost', reasonMessage })
  }
}
