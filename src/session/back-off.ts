import { setTimeout as sleep } from 'node:timers/promises'

/** Waits before another attempt, twice as long after each failure in a row; returns at once when `signal` aborts. */
export async function backOff(
  failures: number,
  { retryFirstMs, retryLastMs }: { retryFirstMs: number; retryLastMs: number },
  signal: AbortSignal,
): Promise<void> {
  const ms = pauseMs(failures, { firstMs: retryFirstMs, lastMs: retryLastMs })
  await sleep(ms, undefined, { signal }).catch(() => {})
}

export function pauseMs(failures: number, { firstMs, lastMs }: { firstMs: number; lastMs: number }): number {
  return Math.min(firstMs * 2 ** Math.max(0, failures - 1), lastMs)
}
