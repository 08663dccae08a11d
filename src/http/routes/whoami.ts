import { whoami as wire } from '../../protocol/http/index.ts'
import { routesOf } from '../server/route.ts'

const route = routesOf('Operations')

export const whoamiRoutes = [
  route('GET', '/api/whoami', {
    id: 'getCaller',
    summary: 'Whose API key this is',
    answers: { 200: { description: 'Its organisation, and the key without its secret', body: wire.whoami } },
    async answer({ orgId, request }) {
      const { organisation, keyId = '' } = request.caller ?? {}
      return { org_id: orgId, org_name: organisation?.name ?? null, user_id: null, email: null, key: { id: keyId } }
    },
  }),
]
