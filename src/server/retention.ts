import { actingAsServer, defaultLogLimits } from '../events/index.ts'
import { defaultAuditLimits } from '../organisation/audit/index.ts'
import { defaultImageLimits, type Images } from '../image/index.ts'
import { singleFlight } from '../lib/async/single-flight.ts'
import type { Log } from '../lib/log.ts'
import type { RunningSandboxService } from '../sandbox/index.ts'
import type { Secrets } from '../secret/index.ts'
import type { Sessions } from '../session/index.ts'
import type { Webhooks } from '../webhook/index.ts'
import type { Store } from '../store/index.ts'
import type { Config } from './config.ts'

export interface RetentionRule {
  what: string
  everyMs: number
  /** A run that the signal or the end of the process cuts off is completed by the next one. */
  run: (signal: AbortSignal) => Promise<unknown>
}

interface RetentionContext {
  sandboxes: Pick<
    RunningSandboxService,
    'purge' | 'emptyQuarantine' | 'deleteExpiredCheckpoints' | 'removeUnusedCaches'
  >
  images: Pick<Images, 'removeUnused' | 'removeOldLogs'> & { contexts: Pick<Images['contexts'], 'removeUnused'> }
  sessions: Pick<Sessions, 'deleteExpired' | 'sweepForkCheckpoints' | 'sweepCapsules'>
  webhooks: Pick<Webhooks, 'purge' | 'tellDisabled'>
  secrets: Pick<Secrets, 'removeUnusedKeys'>
  /** No service stands above these two. */
  store: {
    idempotency: Pick<Store['idempotency'], 'purge'>
    usage: Pick<Store['usage'], 'purge'>
    audit: Pick<Store['audit'], 'purge' | 'organisations' | 'tellHead'>
    events: Pick<Store['events'], 'purge'>
    egress: Pick<Store['egress'], 'removeUnused'>
  }
  config: Pick<Config, 'sessionsKeptMs' | 'limits'>
}

const minuteMs = 60_000
const hourMs = 60 * minuteMs
const dayMs = 24 * hourMs
/** A report goes back 90 days. */
const minuteDays = 92
const spanDays = 400
const buildLogDays = 30
const cacheDays = 30

/** All that is deleted because of its age, or because a crash has left it without use. */
export function retentionRules({
  sandboxes,
  images,
  sessions,
  webhooks,
  secrets,
  store,
  config: { sessionsKeptMs, limits },
}: RetentionContext): RetentionRule[] {
  const { eventsMax, eventDays } = { ...defaultLogLimits, ...limits.events }
  const audit = { ...defaultAuditLimits, ...limits.audit }
  const { unusedDays } = { ...defaultImageLimits, ...limits.image }
  const rules: RetentionRule[] = [
    { what: 'stopped sandboxes', everyMs: 10 * minuteMs, run: (signal) => sandboxes.purge(ago(dayMs), signal) },
    { what: 'expired checkpoints', everyMs: minuteMs, run: (signal) => sandboxes.deleteExpiredCheckpoints(signal) },
    { what: 'quarantine', everyMs: hourMs, run: () => sandboxes.emptyQuarantine() },
    { what: 'checkpoints of forks', everyMs: 10 * minuteMs, run: () => sessions.sweepForkCheckpoints() },
    { what: 'capsules', everyMs: 10 * minuteMs, run: (signal) => sessions.sweepCapsules(signal) },
    { what: 'unused images', everyMs: hourMs, run: (signal) => images.removeUnused(ago(unusedDays * dayMs), signal) },
    {
      what: 'logs of builds',
      everyMs: hourMs,
      run: (signal) => images.removeOldLogs(ago(buildLogDays * dayMs), signal),
    },
    {
      what: 'contexts of builds',
      everyMs: 10 * minuteMs,
      run: (signal) => images.contexts.removeUnused(ago(dayMs), signal),
    },
    {
      what: 'caches of builds',
      everyMs: hourMs,
      run: (signal) => sandboxes.removeUnusedCaches(ago(cacheDays * dayMs), signal),
    },
    { what: 'audit', everyMs: hourMs, run: () => store.audit.purge(ago(audit.days * dayMs), audit.rowsMax) },
    { what: 'heads of the audit', everyMs: dayMs, run: () => tellHeads(store.audit) },
    { what: 'usage', everyMs: hourMs, run: () => store.usage.purge(ago(minuteDays * dayMs), ago(spanDays * dayMs)) },
    { what: 'messages of webhooks', everyMs: 10 * minuteMs, run: () => webhooks.purge() },
    { what: 'failing webhooks', everyMs: minuteMs, run: () => webhooks.tellDisabled() },
    { what: 'keys of secrets', everyMs: minuteMs, run: () => secrets.removeUnusedKeys() },
    { what: 'authorities and secrets of creations', everyMs: hourMs, run: () => store.egress.removeUnused(ago(dayMs)) },
    { what: 'idempotency keys', everyMs: hourMs, run: () => store.idempotency.purge(ago(dayMs)) },
    { what: 'events', everyMs: hourMs, run: () => store.events.purge(ago(eventDays * dayMs), eventsMax) },
  ]
  if (sessionsKeptMs !== undefined) {
    const run = (signal: AbortSignal) => sessions.deleteExpired(ago(sessionsKeptMs), signal)
    rules.push({ what: 'ended sessions', everyMs: hourMs, run })
  }
  return rules
}

/** A receiver of webhooks that keeps the heads shows that the end of the audit was not cut off. */
async function tellHeads(audit: Pick<Store['audit'], 'organisations' | 'tellHead'>): Promise<void> {
  for (const orgId of await audit.organisations()) await audit.tellHead(orgId)
}

/** Carries out each rule now and again after its time. Its disposal waits for the runs under way. */
export function startRetention(rules: readonly RetentionRule[], log: Log): AsyncDisposable {
  const closing = new AbortController()
  const clocks = rules.map(({ what, everyMs, run }) => {
    const carryOut = singleFlight(() =>
      actingAsServer('retention', () => run(closing.signal)).catch((error: unknown) => {
        if (!closing.signal.aborted) log.warn({ err: error, what }, 'what has expired could not be deleted')
      }),
    )
    let latest = carryOut()
    const timer = setInterval(() => {
      latest = carryOut()
    }, everyMs).unref()
    return { timer, latest: () => latest }
  })
  return {
    async [Symbol.asyncDispose]() {
      closing.abort()
      for (const { timer } of clocks) clearInterval(timer)
      await Promise.all(clocks.map(({ latest }) => latest()))
    },
  }
}

function ago(ms: number): Date {
  return new Date(Date.now() - ms)
}
