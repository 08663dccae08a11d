import { z } from 'zod'
import { defined } from '../../lib/defined.ts'
import { secretStores as wire } from '../../protocol/http/index.ts'
import type { Secret, Store } from '../../secret/index.ts'
import { routesOf } from '../server/route.ts'
import { milliseconds } from '../server/time.ts'

const route = routesOf('Secrets', 'secret')
const path = '/api/secret-stores/:storeId'
// Each of these calls is made by OpenComputer's SDK.
const lenient = true
const ofAll = true

export const secretStoreRoutes = [
  route('POST', '/api/secret-stores', {
    id: 'createSecretStore',
    ...{ lenient, ofAll },
    summary: 'Make a secret store',
    description: 'A named set of secrets, for sandboxes that are made with its name. No call ever answers a value.',
    body: wire.createSecretStore,
    creates: true,
    answers: { 201: { description: 'The store, without secrets', body: wire.secretStore } },
    errors: ['conflict', 'quota_exceeded'],
    async answer({ orgId, body, creation, deps }) {
      const { name, egressAllowlist, isDefault } = body
      const input = { name, egressAllowlist: egressAllowlist ?? [], ...defined({ isDefault }) }
      return storeBody(await deps.secrets.create(orgId, input, { creation }))
    },
  }),
  route('GET', '/api/secret-stores', {
    id: 'listSecretStores',
    ...{ lenient, ofAll },
    summary: 'List secret stores',
    answers: { 200: { description: 'By name', body: z.array(wire.secretStore) } },
    answer: async ({ orgId, deps }) => (await deps.secrets.list(orgId)).map(storeBody),
  }),
  route('GET', path, {
    id: 'getSecretStore',
    ...{ lenient, ofAll },
    summary: 'Read a secret store',
    answers: { 200: { description: 'The store', body: wire.secretStore } },
    answer: async ({ orgId, params, deps }) => storeBody(await deps.secrets.read(orgId, params.storeId)),
  }),
  route('PUT', path, {
    id: 'updateSecretStore',
    ...{ lenient, ofAll },
    summary: 'Change a secret store',
    description:
      'What is left out stays. Sandboxes that run with it follow; the call answers when they do, or after 15 s. They are given stores by name: another name takes it from those that were given the former one.',
    body: wire.updateSecretStore,
    answers: { 200: { description: 'The store', body: wire.secretStore } },
    errors: ['conflict'],
    async answer({ orgId, params, body, deps }) {
      const { name, egressAllowlist, isDefault } = body
      const change = { name: name ?? undefined, egressAllowlist: egressAllowlist ?? undefined, isDefault }
      return storeBody(await deps.secrets.update(orgId, params.storeId, change))
    },
  }),
  route('DELETE', path, {
    id: 'deleteSecretStore',
    ...{ lenient, ofAll },
    summary: 'Delete a secret store with its secrets',
    description: 'Sandboxes that run lose its secrets, and its hosts are no restriction any more.',
    answers: { 204: { description: 'It is gone' } },
    answer: ({ orgId, params, deps }) => deps.secrets.remove(orgId, params.storeId),
  }),
  route('GET', `${path}/secrets`, {
    id: 'listSecrets',
    ...{ lenient, ofAll },
    summary: 'List the secrets of a store',
    answers: { 200: { description: 'By name, without values', body: z.array(wire.secret) } },
    answer: async ({ orgId, params, deps }) => (await deps.secrets.listSecrets(orgId, params.storeId)).map(secretBody),
  }),
  route('PUT', `${path}/secrets/:secretName`, {
    id: 'setSecret',
    ...{ lenient, ofAll },
    summary: 'Set a secret',
    description:
      'Replaces value and rules of an earlier one. Sandboxes that run send the new value from their next request on; the call answers when they do, or after 15 s.',
    body: wire.setSecret,
    answers: { 200: { description: 'It is stored', body: wire.secretSet } },
    errors: ['quota_exceeded', 'unavailable'],
    async answer({ orgId, params, body, deps }) {
      const { allowedHosts, ...rest } = body
      const input = { ...rest, allowedHosts: allowedHosts ?? [] }
      const { secretName: name, storeId } = params
      return { name, status: 'set', ...(await deps.secrets.set(orgId, storeId, name, input)) }
    },
  }),
  route('DELETE', `${path}/secrets/:secretName`, {
    id: 'deleteSecret',
    ...{ lenient, ofAll },
    summary: 'Delete a secret',
    description: 'Sandboxes that run lose it.',
    answers: { 204: { description: 'It is gone' } },
    answer: ({ orgId, params, deps }) => deps.secrets.removeSecret(orgId, params.storeId, params.secretName),
  }),
  route('POST', '/api/operator/secrets/rotate', {
    id: 'rotateSecretsKey',
    auth: 'operator',
    scope: 'any',
    summary: 'Take another key for what is stored of secrets',
    description:
      'Makes a key in the data directory, or with `ATOLL_SECRETS_KEY` takes its first one, and seals with it all that another has sealed. Nothing is interrupted. A repeat after a crash goes on.',
    answers: { 200: { description: 'All is sealed with it', body: wire.secretsKeyRotated } },
    errors: ['unavailable'],
    answer: ({ deps }) => deps.secrets.rotateKey(),
  }),
]

function storeBody({ id, orgId, name, egressAllowlist, isDefault, createdAt, updatedAt }: Store) {
  const times = { createdAt: milliseconds(createdAt), updatedAt: milliseconds(updatedAt) }
  return { id, orgId, name, egressAllowlist, isDefault, ...times } satisfies z.output<typeof wire.secretStore>
}

function secretBody(secret: Secret): z.output<typeof wire.secret> {
  const { id, storeId, name, allowedHosts, places, shape, sign, createdAt, updatedAt } = secret
  return {
    ...{ id, storeId, name, allowedHosts, in: places, placeholder: shape, ...defined({ sign }) },
    ...{ createdAt: milliseconds(createdAt), updatedAt: milliseconds(updatedAt) },
  }
}
