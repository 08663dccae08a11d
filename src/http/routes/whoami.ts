import type { z } from 'zod'
import { whoami as wire } from '../../protocol/http/index.ts'
import type { Caller } from '../server/auth.ts'
import { routesOf } from '../server/route.ts'
import { milliseconds } from '../server/time.ts'

const route = routesOf('Operations', 'any')

export const whoamiRoutes = [
  route('GET', '/api/whoami', {
    id: 'getCaller',
    auth: 'key_or_operator',
    summary: 'Whose API key this is',
    answers: { 200: { description: 'Its organisation, and the key without its secret', body: wire.whoami } },
    answer: async ({ request }) => request.caller && whoamiBody(request.caller),
  }),
]

export function whoamiBody({
  organisation,
  keyId = '',
  key,
  isOperator = false,
}: Caller): z.output<typeof wire.whoami> {
  const own = {
    ...{ id: keyId, name: key?.name ?? '', scopes: key?.scopes ?? null, namePrefix: key?.namePrefix ?? null },
    expiresAt: key?.expiresAt === undefined ? null : milliseconds(key.expiresAt),
  }
  return {
    org_id: organisation.id,
    org_name: organisation.name ?? null,
    user_id: null,
    email: null,
    key: own,
    isOperator,
  }
}
