/** How long a gateway that cannot be reached, or that breaks off its answers, is asked again (docs/agent.md § Harness pi). */
export const gatewayRetryMs = 60_000

/** Pauses between the attempts. */
export const gatewayBackOff = { firstMs: 500, maxMs: 8000, jitter: 0.5 }
