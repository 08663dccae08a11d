import type { Log } from '../lib/log.ts'
import type { ReconcileReport, RuntimeDriver } from './driver.ts'
import type { Lifecycle } from './lifecycle.ts'
import type { Sandbox } from './sandbox.ts'
import type { SandboxStore } from './store.ts'

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
 * | hibernated | put to sleep, or adopted where that is refused | stays             | `error`, `host_lost` |
 *
 * Dumps that were cut off have failed; machines, disks and checkpoints without a record are removed by the driver.
 */
export async function recover(deps: RecoveryDeps): Promise<void> {
  const { store, driver, log } = deps
  const cutOff = await store.sandboxesIn(['creating'])
  const known = await store.sandboxesIn(['running', 'hibernated', 'error'])
  const dumping = await store.checkpointsIn('processing')
  const dumpingIds = new Set(dumping.map((checkpoint) => checkpoint.id))
  const checkpointIds = (await store.checkpointIds()).filter((id) => !dumpingIds.has(id))

  const report = await driver.open({ sandboxIds: known.map((sandbox) => sandbox.id), checkpointIds })

  for (const { id } of dumping)
    await store.updateCheckpoint(id, { status: 'failed', error: 'the server stopped meanwhile' })
  for (const id of report.lostCheckpoints) {
    await store.updateCheckpoint(id, { status: 'failed', error: 'its data is no longer on this host' })
  }
  for (const sandbox of cutOff) {
    const reasonMessage = 'the server stopped while the sandbox started'
    await deps.lifecycle.found(sandbox.id, { status: 'error', reason: 'runtime_failed', reasonMessage })
  }
  for (const sandbox of known) await settle(deps, sandbox, report)

  const { running, dormant, lost, removed } = report
  log.info(
    { adopted: running.length, dormant: dormant.length, lost, removed, cutOff: cutOff.length },
    'records and machines are in line',
  )
}

async function settle(
  { lifecycle, driver, log }: RecoveryDeps,
  sandbox: Sandbox,
  report: ReconcileReport,
): Promise<void> {
  const { id, status } = sandbox
  if (status === 'error') return
  if (report.lost.includes(id)) {
    const reasonMessage = 'its disk is no longer on this host'
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
  }
}
