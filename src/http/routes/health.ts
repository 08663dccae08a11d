import { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import { route } from '../server/route.ts'

const tag = 'Operations'
const state = z.object({ status: z.literal('ok') }).meta({ id: 'Health' })

export const healthRoutes = [
  route({
    method: 'GET',
    path: '/healthz',
    tag,
    summary: 'Whether the process is alive',
    auth: 'probe',
    answers: { 200: { description: 'It is', body: state } },
    async handle() {
      return { statusCode: 200, body: { status: 'ok' } }
    },
  }),
  route({
    method: 'GET',
    path: '/readyz',
    tag,
    summary: 'Whether requests should come here',
    auth: 'probe',
    answers: { 200: { description: 'They should', body: state } },
    async handle({ deps, streams }) {
      if (streams.draining.aborted) throw new ServiceError('unavailable', 'the server is stopping')
      await deps.ready()
      return { statusCode: 200, body: { status: 'ok' } }
    },
  }),
]
