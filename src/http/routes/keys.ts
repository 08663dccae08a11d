import { z } from 'zod'
import { ServiceError } from '../../errors.ts'
import { defined } from '../../lib/defined.ts'
import type { KnownKey } from '../../organisation/index.ts'
import { keys as wire } from '../../protocol/http/index.ts'
import { type Call, type Route, routesOf } from '../server/route.ts'
import { milliseconds } from '../server/time.ts'

const route = routesOf('Keys', 'keys')

/** The keys of the caller's organisation, and with the operator's key those of any. */
export const keyRoutes: Route[] = [
  ...routesBelow('/api/keys', ''),
  ...routesBelow('/api/orgs/:orgId/keys', 'OfOrganisation'),
]

function routesBelow(path: string, suffix: '' | 'OfOrganisation'): Route[] {
  const auth = suffix === '' ? 'key' : 'key_or_operator'
  const whose = suffix === '' ? 'your organisation' : 'an organisation'
  return [
    route('POST', path, {
      id: `createKey${suffix}`,
      auth,
      summary: `Make a key of ${whose}`,
      description: 'A key gives no more than it has itself, and its end is theirs. The secret is shown this once.',
      body: wire.createKey,
      creates: true,
      answers: { 201: { description: 'The key with its secret', body: wire.createdKey } },
      errors: ['quota_exceeded'],
      async handle(call) {
        const { body, creation, deps } = call
        const { name, scopes, expiresAt, namePrefix, sandboxesMax } = body
        const ends = expiresAt === undefined ? undefined : new Date(expiresAt)
        const input = defined({ name, scopes, namePrefix, sandboxesMax, expiresAt: ends })
        const { key, secret } = await deps.keys.create(orgOf(call), input, call.request.caller?.key, { creation })
        return { statusCode: 201, body: { ...keyBody(key), key: secret } }
      },
    }),
    route('GET', path, {
      id: `listKeys${suffix}`,
      auth,
      summary: `List the keys of ${whose}`,
      description: 'A key that is bound in some way sees itself and those that it has made.',
      answers: { 200: { description: 'Newest first', body: z.array(wire.key) } },
      answer: async (call) => (await call.deps.keys.list(orgOf(call), call.request.caller?.key)).map(keyBody),
    }),
    route('DELETE', `${path}/:keyId`, {
      id: `deleteKey${suffix}`,
      auth,
      summary: 'End a key, with those that it has made',
      description: 'Its calls, streams and WebSockets end within a second.',
      answers: { 204: { description: 'It has ended' } },
      answer: async (call) => {
        const { keyId = '' } = call.params as { keyId?: string }
        await call.deps.keys.delete(orgOf(call), keyId, call.request.caller?.key)
      },
    }),
  ]
}

/** Throws `not_found` for an organisation that is not the caller's, or of the operator's there is none. */
function orgOf({
  orgId: own,
  params,
  request,
  deps,
}: Pick<Call, 'orgId' | 'request' | 'deps'> & { params: unknown }): string {
  const { orgId = own } = params as { orgId?: string }
  if (request.caller?.isOperator === true) return deps.organisations.get(orgId).id
  if (orgId === own) return own
  throw new ServiceError('not_found', `no organisation ${orgId}`)
}

function keyBody(key: KnownKey): z.output<typeof wire.key> {
  const { id, orgId, name, keyPrefix, scopes, expiresAt, lastUsedAt, namePrefix, sandboxesMax, madeBy, isDefault } = key
  const time = (date: Date | undefined) => (date === undefined ? null : milliseconds(date))
  return {
    ...{ id, orgId, name, isDefault, keyPrefix: keyPrefix ?? null, scopes: scopes ?? null },
    ...{ expiresAt: time(expiresAt), lastUsedAt: time(lastUsedAt), createdAt: milliseconds(key.createdAt) },
    ...{ namePrefix: namePrefix ?? null, sandboxesMax: sandboxesMax ?? null, madeBy: madeBy ?? null },
  }
}
