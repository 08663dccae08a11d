import { actingAsServer, defaultLogLimits } from '../events/index.ts'
import { singleFlight } from '../lib/async/single-flight.ts'
import type { Log } from '../lib/log.ts'
import type { Store } from '../store/index.ts'
import type { Config } from './config.ts'

const intervalMs = 3_600_000
const dayMs = 24 * intervalMs
const idempotencyKeptMs = 24 * 3_600_000
/** Sessions that are listed, and then deleted, at once. */
const sessionBatchMax = 1000

/**
 * Deletes expired records now and every hour until disposed. Stopped sandboxes are deleted by the
 * sandbox service.
 */
export function startRetention(store: Store, { sessionsKeptMs, limits }: Config, log: Log): Disposable {
  const { eventsMax, eventDays } = { ...defaultLogLimits, ...limits.events }
  const deleteExpired = singleFlight(async () => {
    await store.idempotency.purge(ago(idempotencyKeptMs))
    await store.events.purge(ago(eventDays * dayMs), eventsMax)
    if (sessionsKeptMs !== undefined) await deleteExpiredSessions(store, ago(sessionsKeptMs))
  })
  const run = () => {
    actingAsServer('retention', deleteExpired).catch((error: unknown) =>
      log.warn({ err: error }, 'expired records could not be deleted'),
    )
  }
  run()
  const timer = setInterval(run, intervalMs).unref()
  return { [Symbol.dispose]: () => clearInterval(timer) }
}

/** An interrupted run is completed by the next one: a session is listed until it is deleted. */
export async function deleteExpiredSessions({ sessions }: Pick<Store, 'sessions'>, endedBefore: Date): Promise<void> {
  for (;;) {
    const ids = await sessions.expiredSessions(endedBefore, sessionBatchMax)
    if (ids.length === 0) return
    await sessions.deleteSessions(ids)
  }
}

function ago(ms: number): Date {
  return new Date(Date.now() - ms)
}
