import type { ServerResponse } from 'node:http'

export interface LeastRate {
  bytesPerSecondMin: number
  /** A peer may be behind by as much as it would send or take in this time. */
  graceMs: number
  lookMs: number
}

/** For long transfers. */
export const defaultLeastRate: LeastRate = { bytesPerSecondMin: 4 * 1024, graceMs: 5 * 60_000, lookMs: 1_000 }

export interface Transfer {
  /** Bytes that the peer has sent, or taken, so far. */
  bytes: () => number
  /** Whether the peer is what this side waits for. Other waits do not count. */
  isAwaited: () => boolean
  /** Called once, when the peer is too slow. */
  end: () => void
}

/**
 * Ends a transfer that is slower than `rate`, until the returned function is called. Neither an occasional byte nor a burst into the
 * buffers of the kernel keeps a slow transfer alive.
 */
export function assertLeastRate({ bytes, isAwaited, end }: Transfer, rate = defaultLeastRate): () => void {
  let before = bytes()
  let leftMs = rate.graceMs
  const timer = setInterval(() => {
    const moved = bytes() - before
    before += moved
    if (!isAwaited()) return
    leftMs = Math.min(rate.graceMs, leftMs + (moved / rate.bytesPerSecondMin) * 1000 - rate.lookMs)
    if (leftMs >= 0) return
    clearInterval(timer)
    end()
  }, rate.lookMs)
  timer.unref()
  return () => clearInterval(timer)
}

/** Bytes of a response that have left the process, and whether some wait for the client. `bytesWritten` includes waiting ones. */
export function passedOn({ socket }: ServerResponse): Pick<Transfer, 'bytes' | 'isAwaited'> {
  const waiting = () => socket?.writableLength ?? 0
  return { bytes: () => (socket?.bytesWritten ?? 0) - waiting(), isAwaited: () => waiting() > 0 }
}

/** Resets the connection of a client that takes nothing of its answer for `stallMs`: the answer is in memory until it was sent. */
export function dropWhenStalled(response: ServerResponse, stallMs: number): void {
  // After an orderly end the kernel would keep the unsent bytes for minutes.
  response.setTimeout(stallMs, () => response.socket?.resetAndDestroy())
  // Must run before Node gives the connection to the next answer.
  response.prependOnceListener('finish', () => response.setTimeout(0))
}
