import { metrics as wire } from '../../protocol/http/index.ts'
import type { UsageSample } from '../../sandbox/index.ts'
import { routesOf } from '../server/route.ts'
import { seconds } from '../server/time.ts'

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
]

function timed<Sample extends UsageSample>(sample: Sample) {
  return { ...sample, at: seconds(sample.at), diskBytes: sample.diskBytes ?? null }
}
