import { setTimeout as sleep } from 'node:timers/promises'

/** What `work` comes to, or `undefined` once it takes longer than this; it goes on then, and nobody hears of its end. */
export async function inTime<Result>(ms: number, work: Promise<Result>): Promise<Result | undefined> {
  work.catch(() => {})
  const done = new AbortController()
  const timeout = sleep(ms, undefined, { signal: done.signal }).catch(() => undefined)
  try {
    return await Promise.race([work, timeout])
  } finally {
    done.abort()
  }
}
