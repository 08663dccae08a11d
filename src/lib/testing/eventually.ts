import { setTimeout as sleep } from 'node:timers/promises'

/** Factor by which tests wait longer for the machine, for one that is emulated. */
export const slowness = Number(process.env['ATOLL_TEST_SLOWNESS'] ?? 1)

const pauseFirstMs = 5
const pauseMaxMs = 100

interface Wait {
  /** Of the error. Default: the source of the check. */
  what?: string
  timeoutMs?: number
  /** Waits for a sign that another look may be worth it. Default: a growing pause. */
  pause?: () => Promise<unknown>
}

/**
 * Calls `check` again and again until it neither throws nor answers false, and returns its answer. For what other processes do, and for
 * what announces nothing; where an event can be awaited, await it.
 */
export async function eventually<Result>(
  check: () => Result | Promise<Result>,
  { what = String(check), timeoutMs = 120_000, pause = growingPause() }: Wait = {},
): Promise<Result> {
  const end = performance.now() + timeoutMs * slowness
  for (let cause: unknown; ; await pause()) {
    try {
      const result = await check()
      if (result !== false) return result
      cause = undefined
    } catch (error) {
      cause = error
    }
    if (performance.now() > end) throw new Error(`it never came: ${what}`, { cause })
  }
}

function growingPause(): () => Promise<unknown> {
  let pauseMs = pauseFirstMs / 2
  return () => sleep((pauseMs = Math.min(2 * pauseMs, pauseMaxMs)))
}
