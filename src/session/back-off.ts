import { setTimeout as sleep } from 'node:timers/promises'

/** Waits before another attempt, twice as long after each failure in a row; returns at once when `signal` aborts. */
export async function backOff(
  failures: number,
  { retryFirstMs, retryLastMs }: { retryFirstMs: number; retryLastMs: number },
  signal: AbortSignal,
): Promise<void> {
  const ms = Math.min(retryFirstMs * 2 ** Math.max(0, failures - 1), retryLastMs)
  await sleep(ms, undefined, { signal }).catch(() => {})
}
