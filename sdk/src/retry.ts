import { ConflictError, ConnectionError, RequestTimeoutError, type AtollError } from './errors.ts'

const firstMs = 500
const maxMs = 8_000
/** A server that asks for a longer pause is not asked again. */
const retryAfterMaxSeconds = 60

/**
 * `always`: a repeat has no second effect. `refused`: only where the server has said that it did nothing, as for a command that must not
 * run twice.
 */
export type Repeat = 'always' | 'refused'

/** Codes with which the server says that it has done nothing, and that another attempt may work. */
const refusals = new Set<unknown>(['rate_limited', 'no_capacity'])
/** Codes after which only a request without a second effect may be sent again. */
const transient = new Set<unknown>([...refusals, 'unavailable'])

/** How long to wait before another attempt; undefined: the error is final. `attempt` counts from 1. */
export function pauseMs(error: AtollError, repeat: Repeat, attempt: number): number | undefined {
  if (!mayRepeat(error, repeat, attempt)) return undefined
  const { retryAfterSeconds } = error
  if (retryAfterSeconds !== undefined && retryAfterSeconds > retryAfterMaxSeconds) return undefined
  // Clients that failed together come back apart.
  const ownMs = Math.min(maxMs, firstMs * 2 ** (attempt - 1)) * (0.5 + Math.random() / 2)
  return Math.max(ownMs, (retryAfterSeconds ?? 0) * 1000)
}

function mayRepeat(error: AtollError, repeat: Repeat, attempt: number): boolean {
  if (refusals.has(error.code)) return true
  if (repeat === 'refused') return false
  // The first attempt, whose answer was lost, may still run under the same idempotency key.
  if (error instanceof ConflictError && attempt > 1) return true
  if (error instanceof ConnectionError || error instanceof RequestTimeoutError) return true
  // A proxy in front answers without a code.
  return transient.has(error.code) || (error.code === undefined && [502, 503, 504].includes(error.status ?? 0))
}

/** Rejects with the reason of the signal when that aborts. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted()
    const stop = () => {
      clearTimeout(timer)
      reject(signal?.reason as Error)
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop)
      resolve()
    }, ms)
    signal?.addEventListener('abort', stop, { once: true })
  })
}
