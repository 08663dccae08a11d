import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { OrganisationLimits } from '../../src/organisation/index.ts'
import { type ApiAnswer, ApiClient } from '../support/api-client.ts'
import { useWorld } from '../support/world.ts'

const world = useWorld()

/** An organisation with these limits, and a client with its key. */
async function organisationWith(limits: Partial<OrganisationLimits>): Promise<{ id: string; api: ApiClient }> {
  const { operator, origin } = world
  const { body } = await operator.post('/api/orgs', { name: 'Reef', limits })
  const { body: key } = await operator.post(`/api/orgs/${body.id}/keys`, {})
  return { id: body.id, api: new ApiClient(origin, key.key) }
}

const statuses = (answers: readonly ApiAnswer[]) =>
  answers.map(({ status }) => status).toSorted((one, other) => one - other)
const all = async (count: number, call: () => Promise<ApiAnswer>) =>
  await Promise.all(Array.from({ length: count }, () => call()))

test('quota: of concurrent creates as many run as the organisation may have, also by memory and by CPU', async () => {
  const bounds: [Partial<OrganisationLimits>, object][] = [
    [{ runningSandboxesMax: 3 }, {}],
    [{ memoryMbMax: 1536 }, { memoryMB: 512 }],
    [{ cpuCountMax: 3 }, { cpuCount: 1, memoryMB: 128 }],
  ]
  for (const [limits, body] of bounds) {
    const { api } = await organisationWith(limits)
    const answers = await all(8, () => api.post('/api/sandboxes', body))
    assert.deepEqual(statuses(answers), [201, 201, 201, 429, 429, 429, 429, 429], JSON.stringify(limits))
    const refused = answers.find(({ status }) => status === 429)
    assert.deepEqual([refused?.body.code, refused?.body.limit], ['rate_limited', Object.values(limits)[0]])
    assert.ok(Number(refused?.headers['retry-after']) > 0)
    const { sandboxID } = answers.find(({ status }) => status === 201)!.body
    await api.post(`/api/sandboxes/${sandboxID}/hibernate`)
    assert.equal((await api.post('/api/sandboxes', body)).status, 201, 'what hibernates is free')
    assert.equal((await api.post(`/api/sandboxes/${sandboxID}/wake`)).status, 429, 'a wake counts')
  }
})

test('quota: a sandbox grows within the memory of its organisation, and shrinks beyond it', async () => {
  const { id, api } = await organisationWith({ memoryMbMax: 2048 })
  const { sandboxID } = (await api.post('/api/sandboxes', { memoryMB: 1024 })).body
  const scale = (memoryMB: number) => api.post(`/api/sandboxes/${sandboxID}/scale`, { memoryMB })
  assert.equal((await scale(4096)).status, 429)
  assert.equal((await scale(2048)).status, 200)
  await world.operator.send('PATCH', `/api/orgs/${id}`, { body: { limits: { memoryMbMax: 512 } } })
  assert.equal((await api.get(`/api/sandboxes/${sandboxID}`)).body.status, 'running', 'a lower quota ends nothing')
  assert.equal((await scale(1024)).status, 200)
  assert.equal((await api.post('/api/sandboxes', { memoryMB: 64 })).status, 429)
})

test('quota: sandboxes that are not stopped, checkpoints and disk are bounded', async () => {
  const { api } = await organisationWith({ sandboxesMax: 2, checkpointsMax: 2 })
  const made = await all(5, () => api.post('/api/sandboxes', {}))
  assert.deepEqual(statuses(made), [201, 201, 403, 403, 403])
  const [one, two] = made.filter(({ status }) => status === 201).map(({ body }) => body.sandboxID)
  await api.post(`/api/sandboxes/${one}/hibernate`)
  assert.equal((await api.post('/api/sandboxes', {})).body.code, 'quota_exceeded', 'hibernated ones count')
  let name = 0
  const kept = await all(4, () =>
    api.post(`/api/sandboxes/${two}/checkpoints`, { name: `c${name++}`, kind: 'disk_only' }),
  )
  assert.deepEqual(statuses(kept), [201, 201, 403, 403])
  await api.delete(`/api/sandboxes/${one}`)
  assert.equal((await api.post('/api/sandboxes', {})).status, 201)
  const small = await organisationWith({ diskMbMax: 12_000 })
  assert.equal((await small.api.post('/api/sandboxes', {})).status, 201)
  assert.equal((await small.api.post('/api/sandboxes', {})).body.code, 'quota_exceeded')
})

test('quota: one organisation at its quota keeps no other from starting', async () => {
  const full = await organisationWith({ runningSandboxesMax: 0 })
  const other = await organisationWith({})
  assert.equal((await full.api.post('/api/sandboxes', {})).status, 429)
  assert.equal((await other.api.post('/api/sandboxes', {})).status, 201)
})

test('quota: a create with more webhooks than the organisation may have starts nothing, and its repeat at the limit is no more', async () => {
  const { api } = await organisationWith({ webhooksMax: 1 })
  const webhooks = [{ url: 'http://127.0.0.1:9/hook' }]
  const refused = await api.post('/api/sandboxes', { webhooks: [...webhooks, ...webhooks] })
  assert.deepEqual([refused.status, refused.body.code, refused.body.limit], [403, 'quota_exceeded', 1])
  assert.deepEqual((await api.get('/api/sandboxes')).body, [], 'nothing was started')
  const headers = { 'idempotency-key': 'one' }
  const made = await api.post('/api/sandboxes', { webhooks }, { headers })
  assert.equal(made.body.webhooks.length, 1)
  assert.deepEqual((await api.post('/api/sandboxes', { webhooks }, { headers })).body, made.body)
  assert.equal((await api.post('/api/sandboxes', { webhooks })).status, 403)
})
