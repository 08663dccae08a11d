export interface GatewayLimits {
  bodyBytesMax: number
  /** Request bodies in memory, of all sessions together. An organisation may use half of it, a session a quarter. */
  heldBytesMax: number
  /** The demo model runs in this process and parses the whole body. */
  demoBytesMax: number
  demoValuesMax: number
  /** Concurrent requests of one session. */
  concurrentPerSession: number
  connectionsMax: number
  /** How long a request may take to arrive. */
  requestMs: number
  /** Until the upstream's first byte. Long, because a model thinks before an answer that is not streamed. */
  upstreamFirstByteMs: number
  /** Between two bytes of an upstream's answer. */
  upstreamIdleMs: number
  /** How long transient failures are retried (docs/agent.md § The model gateway). */
  retryMs: number
  retryPauseFirstMs: number
  retryPauseMaxMs: number
}

export const defaultGatewayLimits: GatewayLimits = {
  bodyBytesMax: 32 * 1024 * 1024,
  heldBytesMax: 512 * 1024 * 1024,
  // The limit of aimock.
  demoBytesMax: 10 * 1024 * 1024,
  demoValuesMax: 100_000,
  concurrentPerSession: 8,
  connectionsMax: 4096,
  requestMs: 60_000,
  upstreamFirstByteMs: 10 * 60_000,
  upstreamIdleMs: 5 * 60_000,
  retryMs: 60_000,
  retryPauseFirstMs: 500,
  retryPauseMaxMs: 8000,
}
