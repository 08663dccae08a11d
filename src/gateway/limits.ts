export const defaultGatewayLimits = {
  bodyBytesMax: 32 * 1024 * 1024,
  /** Request bodies in memory, of all sessions together. An organisation may use half of it, a session a quarter. */
  heldBytesMax: 512 * 1024 * 1024,
  /** The demo model runs in this process and parses the whole body. The limit of aimock. */
  demoBytesMax: 10 * 1024 * 1024,
  demoValuesMax: 100_000,
  /** Concurrent requests of one session. */
  concurrentPerSession: 8,
  connectionsMax: 4096,
  /** How long a request may take to arrive. */
  requestMs: 60_000,
  /** How long a request of a suspended organisation waits. Shorter than `requestMs`, after which a body that is not read is answered. */
  suspendedMs: 50_000,
  /** Until the upstream's first byte. Long, because a model thinks before an answer that is not streamed. */
  upstreamFirstByteMs: 10 * 60_000,
  /** Between two bytes of an upstream's answer. */
  upstreamIdleMs: 5 * 60_000,
  /** How long transient failures are retried (docs/use/agent.md § The model gateway). */
  retryMs: 60_000,
  retryPauseFirstMs: 500,
  retryPauseMaxMs: 8000,
}

export type GatewayLimits = typeof defaultGatewayLimits
