import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client'
import { singleFlight } from '../../lib/async/single-flight.ts'
import { diskStates } from '../../sandbox/index.ts'
import type { HttpDeps } from './config.ts'
import { streamKinds, type Streams } from './streams.ts'

export type Metrics = ReturnType<typeof createMetrics>

interface RequestFacts {
  method: string
  /** The template of its path. */
  route: string
  statusCode: number
  seconds: number
}

/** Each server has its own registry, so that two work in one process. */
export function createMetrics(deps: Pick<HttpDeps, 'sandboxCounts' | 'warmCounts' | 'disk'>, streams: Streams) {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })
  const registers = [registry]
  const duration = new Histogram({
    name: 'atoll_http_request_duration_seconds',
    help: 'Requests of the API by route template',
    labelNames: ['method', 'route', 'status'],
    buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10],
    registers,
  })
  const previews = new Counter({
    name: 'atoll_preview_requests_total',
    help: 'Requests to previews by status',
    labelNames: ['status'],
    registers,
  })
  gauge(
    registry,
    'atoll_open_streams',
    'Event streams, WebSockets, exports and transfers of files that are open',
    ['kind'],
    (set) => {
      for (const kind of streamKinds) set(streams.count(kind), { kind })
    },
  )
  // Both gauges of one scrape share a query.
  const sandboxCounts = singleFlight(() => deps.sandboxCounts())
  gauge(registry, 'atoll_sandboxes', 'Sandboxes by state', ['status'], async (set) => {
    for (const [status, count] of Object.entries(await sandboxCounts())) set(count, { status })
  })
  gauge(registry, 'atoll_running_sandboxes', 'Sandboxes in the state running', [], async (set) => {
    set((await sandboxCounts()).running)
  })
  gauge(
    registry,
    'atoll_warm_sandboxes',
    'Sandboxes that wait for an owner, by what they come from',
    ['from'],
    (set) => {
      for (const [from, count] of Object.entries(deps.warmCounts())) set(count, { from })
    },
  )
  addDiskGauges(registry, deps)
  return {
    requested({ method, route, statusCode, seconds }: RequestFacts): void {
      duration.observe({ method, route, status: statusCode }, seconds)
    },
    previewed(statusCode: number): void {
      previews.inc({ status: statusCode })
    },
    /** The exposition format of Prometheus. */
    text: singleFlight(() => registry.metrics()),
  }
}

function addDiskGauges(registry: Registry, { disk }: Pick<HttpDeps, 'disk'>): void {
  gauge(registry, 'atoll_disk_state', '1 for the state of the disk', ['state'], (set) => {
    const now = disk()?.state
    for (const state of diskStates) if (now !== undefined) set(now === state ? 1 : 0, { state })
  })
  gauge(registry, 'atoll_disk_available_bytes', 'What can still be written, by where', ['of'], (set) => {
    const report = disk()
    if (report === undefined) return
    set(report.availableBytes, { of: 'pool' })
    set(report.belowBytes, { of: 'below' })
    set(report.reserveBytes, { of: 'reserve' })
  })
  gauge(registry, 'atoll_disk_errors', 'What the disk below the pool has failed to do, by kind', ['kind'], (set) => {
    for (const [kind, count] of Object.entries(disk()?.errors ?? {})) set(count, { kind })
  })
}

/** A gauge that is measured at each scrape. A failed measurement is absent from the scrape. */
function gauge(
  registry: Registry,
  name: string,
  help: string,
  labelNames: string[],
  measure: (set: (value: number, labels?: Record<string, string>) => void) => void | Promise<void>,
): void {
  const made = new Gauge({
    name,
    help,
    labelNames,
    registers: [],
    async collect() {
      // Without labels a reset would set 0.
      if (labelNames.length === 0) this.remove()
      else this.reset()
      try {
        await measure((value, labels = {}) => this.set(labels, value))
      } catch {
        // `/readyz` reports a database that does not answer.
      }
    },
  })
  registry.registerMetric(made)
}
