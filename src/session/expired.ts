import type { SessionStore } from './store.ts'

/** Sessions that are listed, and then deleted, at once. */
const batchMax = 1000

/** Deletes those that ended before, with their history. A session is listed until it is deleted, so the next call completes one that was cut off. */
export async function deleteExpiredSessions(
  store: Pick<SessionStore, 'expiredSessions' | 'deleteSessions'>,
  endedBefore: Date,
  signal?: AbortSignal,
): Promise<void> {
  for (;;) {
    const ids = await store.expiredSessions(endedBefore, batchMax)
    if (ids.length === 0 || signal?.aborted) return
    await store.deleteSessions(ids)
  }
}
