import type { ServerResponse } from 'node:http'
import { assertLeastRate, passedOn, type LeastRate } from './least-rate.ts'
import { closed } from './once-closed.ts'

/** For answers that hold memory until they are sent. */
const answerRate: LeastRate = { bytesPerSecondMin: 64 * 1024, graceMs: 60_000, lookMs: 1_000 }

/**
 * Resolves when an answer was sent, or its connection has ended. A client that takes it too slowly loses the connection: others wait for the
 * memory. What was written as one part counts as taken at its end.
 */
export function taken(response: ServerResponse, rate = answerRate): Promise<void> {
  const { bytes, isAwaited } = passedOn(response)
  const stop = assertLeastRate(
    {
      bytes,
      isAwaited: () => response.headersSent && isAwaited(),
      end: () => response.destroy(new Error('the client takes its answer too slowly')),
    },
    rate,
  )
  return closed(response).finally(stop)
}
