import type { Atoll, RequestOptions } from './atoll.ts'
import { type AtollError, ConnectionError } from './errors.ts'
import { afterBreak, eventsOf } from './events.ts'
import type { MetricsSample } from './types.ts'

export interface WatchMetricsOptions extends RequestOptions {
  /** Called when the connection stands, for the first time and again. */
  onOpen?: (() => void) | undefined
  /** Called when the connection has broken and is made again. */
  onBreak?: ((error: AtollError) => void) | undefined
}

/** See {@link Atoll.watchMetrics}. Each connection begins with the last hour, so what was seen of it already is left out. */
export async function* samplesOf(
  client: Atoll,
  sandboxIds: readonly string[],
  { onOpen, onBreak, ...options }: WatchMetricsOptions,
): AsyncGenerator<MetricsSample> {
  /** When the newest sample of each sandbox was taken. */
  const seen = new Map<string, string>()
  for (let failures = 0; ;) {
    try {
      const response = await client.open('GET', '/api/metrics/stream', {
        ...options,
        query: { sandbox: sandboxIds },
        headers: { Accept: 'text/event-stream' },
      })
      onOpen?.()
      for await (const { data } of eventsOf(response.body ?? new ReadableStream())) {
        if (data === '') continue
        failures = 0
        const sample = JSON.parse(data) as MetricsSample
        // Times of one form sort as texts.
        if (sample.at <= (seen.get(sample.sandboxId) ?? '')) continue
        seen.set(sample.sandboxId, sample.at)
        yield sample
      }
      // The stream ends with the server alone.
      throw new ConnectionError('the stream ended')
    } catch (error) {
      failures += 1
      await afterBreak(error, failures, { signal: options.signal, onBreak })
    }
  }
}
