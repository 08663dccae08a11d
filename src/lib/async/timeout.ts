import { setTimeout as sleep } from 'node:timers/promises'

/** The result of `work`, or `undefined` when it takes longer than `ms`. The work goes on then; its result or failure is dropped. */
export async function withTimeout<Result>(ms: number, work: Promise<Result>): Promise<Result | undefined> {
  work.catch(() => {})
  const done = new AbortController()
  const timeout = sleep(ms, undefined, { signal: done.signal }).catch(() => undefined)
  try {
    return await Promise.race([work, timeout])
  } finally {
    done.abort()
  }
}
