import type { z } from 'zod'
import { metrics as wire } from '../../protocol/http/index.ts'
import { defined } from '../../lib/defined.ts'
import type { FollowedSample, UsageSample } from '../../sandbox/index.ts'
import { streamEvents } from '../server/event-stream.ts'
import { type Encoding, heartbeat } from '../server/event-writer.ts'
import { routesOf } from '../server/route.ts'
import { logStreamCaps } from '../server/streams.ts'
import { milliseconds, seconds } from '../server/time.ts'

const route = routesOf('Sandboxes', 'sandbox')

export const metricsRoutes = [
  route('GET', '/api/sandboxes/:id/metrics', {
    id: 'getMetricsOfSandbox',
    summary: 'Read what a sandbox uses, and has used in the last hour',
    description:
      'As the host sees it: the call wakes no sandbox and is no activity. Samples are in the memory of the server: a restart of it ' +
      'begins anew. They stay while a sandbox hibernates and go when it is stopped.',
    answers: { 200: { description: 'Now, and the last hour', body: wire.metrics } },
    errors: ['unavailable'],
    async handle({ orgId, params, deps }) {
      const { now, samples } = await deps.sandboxes.usage.readRecent(orgId, params.id)
      return { statusCode: 200, body: { now: now === undefined ? null : timed(now), samples: samples.map(timed) } }
    },
  }),
  route('GET', '/api/metrics/stream', {
    id: 'streamMetrics',
    summary: 'Follow what sandboxes use',
    description:
      'Server-sent events without numbers, whose `data` is one JSON object, a [`MetricsSample`](#/components/schemas/MetricsSample): of each sandbox the ' +
      'last hour, thinned to at most 60 samples, then each sample as it is taken, every 15 seconds. Unknown sandboxes, and those that do not run, have none. ' +
      'It wakes no sandbox and is no activity. A client that reads slowly misses samples.',
    auth: 'key_or_query',
    query: wire.followQuery,
    answers: {
      200: {
        description: 'The stream',
        content: 'text/event-stream',
        example:
          'retry: 3000\n\ndata: {"sandboxId":"sb-7f3k9q2m5x8w1c4z","at":"2026-01-15T10:30:00.000Z","cpuPercent":12.5,…}\n\n',
      },
    },
    async handle(call) {
      const { orgId, query, request, deps } = call
      return await streamEvents(call, { caps: logStreamCaps(call), about: { orgId } }, async (signal, send) => {
        const { reach } = request.caller ?? {}
        const samples = deps.sandboxes.usage.follow(orgId, query.sandbox, { signal, ...defined({ reach }) })
        return await send(samples, sampleEncoding)
      })
    },
  }),
]

const sampleEncoding: Encoding<readonly FollowedSample[]> = {
  encode: (samples) => Buffer.from(samples.map((sample) => `data: ${JSON.stringify(shownOf(sample))}\n\n`).join('')),
  heartbeat: () => heartbeat,
}

function shownOf({ at, ...sample }: FollowedSample): z.output<typeof wire.followedSample> {
  return { ...sample, at: milliseconds(at) }
}

function timed<Sample extends UsageSample>(sample: Sample) {
  return { ...sample, at: seconds(sample.at), diskBytes: sample.diskBytes ?? null }
}
