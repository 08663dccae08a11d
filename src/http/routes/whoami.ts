import { whoami as wire } from '../../protocol/http/index.ts'
import { routesOf } from '../server/route.ts'
import { milliseconds } from '../server/time.ts'

const route = routesOf('Operations', 'any')

export const whoamiRoutes = [
  route('GET', '/api/whoami', {
    id: 'getCaller',
    summary: 'Whose API key this is',
    answers: { 200: { description: 'Its organisation, and the key without its secret', body: wire.whoami } },
    async answer({ orgId, request }) {
      const { organisation, keyId = '', key } = request.caller ?? {}
      const own = {
        ...{ id: keyId, name: key?.name ?? '', scopes: key?.scopes ?? null, namePrefix: key?.namePrefix ?? null },
        expiresAt: key?.expiresAt === undefined ? null : milliseconds(key.expiresAt),
      }
      return { org_id: orgId, org_name: organisation?.name ?? null, user_id: null, email: null, key: own }
    },
  }),
]
