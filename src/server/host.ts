import { availableParallelism, freemem, release, totalmem } from 'node:os'
import type { HostReport, HttpDeps } from '../http/server/server.ts'
import { singleFlight } from '../lib/async/single-flight.ts'
import type { CheckReport } from '../runtime/doctor/index.ts'
import type { DiskReport, DriverCapabilities } from '../sandbox/index.ts'

const checksKeptMs = 10 * 60_000
/** Of checks that are asked for anew: they run programs of the machine. */
const freshChecksKeptMs = 10_000

export interface HostReporterOptions {
  runtime: string
  /** Capabilities that the driver found at its start. */
  capabilities: () => DriverCapabilities
  inspect: () => Promise<CheckReport[]>
  diskSpace: () => Promise<{ bytes: number; availableBytes: number }>
  disk?: () => DiskReport | undefined
  runningSandboxes: () => Promise<number>
  warmSandboxes: () => number
  now?: () => Date
}

/**
 * Reports on the host of this process. Capacity is of the moment; checks are kept for ten minutes, fresh ones for ten seconds, and concurrent
 * calls share a run.
 */
export function createHostReporter(options: HostReporterOptions): HttpDeps['host'] {
  const {
    runtime,
    capabilities,
    inspect,
    disk: diskOf = () => undefined,
    diskSpace,
    runningSandboxes,
    warmSandboxes,
    now = () => new Date(),
  } = options
  const startedAt = now()
  let kept: Pick<HostReport, 'checks' | 'checkedAt'> | undefined
  const check = singleFlight(async () => {
    const checks = [...(await inspect()).map(rowOf), fullCheckpointsRow(capabilities())]
    kept = { checks, checkedAt: now() }
    return kept
  })
  return async ({ isFresh = false } = {}) => {
    const keptMs = isFresh ? freshChecksKeptMs : checksKeptMs
    const mayServe = kept !== undefined && now().getTime() - kept.checkedAt.getTime() < keptMs
    const [checked, disk, running] = await Promise.all([mayServe ? kept! : check(), diskSpace(), runningSandboxes()])
    return {
      kernel: release(),
      runtime,
      startedAt,
      capacity: {
        cpuCount: availableParallelism(),
        memoryBytes: totalmem(),
        memoryAvailableBytes: freemem(),
        diskBytes: disk.bytes,
        diskAvailableBytes: disk.availableBytes,
        runningSandboxes: running,
        warmSandboxes: warmSandboxes(),
      },
      checkedAt: checked.checkedAt,
      checks: [...checked.checks, ...diskRows(diskOf())],
    }
  }
}

/** Measured at each call: a full disk must show at once, not ten minutes later. */
function diskRows(report: DiskReport | undefined): HostReport['checks'] {
  if (report === undefined) return []
  const { state, reason, belowBytes, reserveBytes, errors } = report
  const failed = Object.entries(errors).filter(([, count]) => count > 0)
  const told =
    failed.length === 0 ? '' : `; errors so far: ${failed.map(([kind, count]) => `${kind} ${count}`).join(', ')}`
  const left = `${gibibytes(belowBytes)} GB are left below the pool, ${gibibytes(reserveBytes)} GB are reserved`
  const status = state === 'ok' && failed.length === 0 ? 'works' : 'fails'
  return [{ name: 'disk space', status, detail: `${reason ?? left}${told}` }]
}

function gibibytes(bytes: number): string {
  return (bytes / 2 ** 30).toFixed(1)
}

function rowOf({ name, state, found, advice }: CheckReport): HostReport['checks'][number] {
  const isAdvised = state !== 'works' && advice !== undefined
  return { name, status: state, detail: isAdvised ? `${found}: ${advice}` : found }
}

/** Nothing is dumped for this row: the driver has tried CRIU when the server started. */
function fullCheckpointsRow({
  fullCheckpoints,
  fullCheckpointsReason,
}: DriverCapabilities): HostReport['checks'][number] {
  const name = 'full checkpoints'
  if (fullCheckpoints) return { name, status: 'works', detail: 'as tried at the start of the server' }
  return { name, status: 'missing', detail: fullCheckpointsReason ?? 'the runtime has none' }
}
