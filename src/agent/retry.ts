/** How long a gateway that cannot be reached, or that breaks off its answers, is asked again (docs/agent.md § Harness pi). */
export const retryMs = 60_000

const pauseFirstMs = 500
const pauseMaxMs = 8000

/** Before the next attempt: doubles with each, and has jitter, so that the agents of a restarted server do not come at once. */
export function retryPauseMs(attempt: number): number {
  return Math.min(pauseFirstMs * 2 ** attempt, pauseMaxMs) * (0.5 + Math.random() / 2)
}
