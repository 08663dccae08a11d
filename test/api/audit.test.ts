import assert from 'node:assert/strict'
import { test } from 'node:test'
import { AuditVerifier, type ChainedEntry } from '../../src/protocol/audit.ts'
import { ServiceError } from '../../src/errors.ts'
import { ApiClient } from '../support/api-client.ts'
import { useWorld } from '../support/world.ts'

const world = useWorld()

const list = async (query = '') => (await world.api.get(`/api/audit${query}`)).body as ChainedEntry[]

test('audit: a call is in it before it is done, with who, from where and about what', async () => {
  const { body: who } = await world.api.get('/api/whoami')
  const { body: made } = await world.api.post('/api/sandboxes', {
    name: 'audited',
    timeout: 60,
    envs: { TOKEN: 'x9x9x9' },
  })
  await world.api.post('/api/sandboxes/audited/exec/run', {
    cmd: 'sh',
    args: ['-c', 'API_KEY=verysecret env'],
    envs: { A: '1' },
  })
  const [run, created] = await list()
  assert.deepEqual(
    [created?.operation, created?.actorType, created?.actorId, created?.address, created?.status],
    ['createSandbox', 'key', who.key.id, '127.0.0.1', null],
  )
  assert.deepEqual(created?.subject, { name: 'audited', templateID: 'base', timeout: 60, envNames: ['TOKEN'] })
  assert.deepEqual(run?.subject, {
    ...{ id: made.sandboxID, cmd: 'sh', args: ['-c', 'API_KEY=[redacted] env'], envNames: ['A'] },
  })
  assert.ok(!JSON.stringify(await list()).includes('x9x9x9'))
})

test('audit: a failed call has a second entry with its status, a refused one has one, a read has none', async () => {
  const [last] = await list()
  await world.api.delete('/api/sandboxes/sb-0000000000000000')
  const { body } = await world.api.post('/api/keys', { scopes: ['sandbox:read'] })
  const reader = new ApiClient(world.origin, body.key)
  await reader.post('/api/sandboxes', {})
  await reader.get('/api/sandboxes')
  await reader.get('/api/audit')
  let entries: ChainedEntry[] = []
  // Refusals are written in the background.
  while (entries.length < 5) entries = (await list()).filter(({ number }) => number > last!.number).toReversed()
  assert.deepEqual(
    entries.map(({ operation, status }) => [operation, status]),
    [
      ['deleteSandbox', null],
      ['deleteSandbox', 404],
      ['createKey', null],
      ['createSandbox', 403],
      ['listAudit', 403],
    ],
  )
  assert.equal(entries[0]?.request, entries[1]?.request)
  assert.equal(entries[3]?.actorId, body.id)
})

test('audit: a call is refused and does nothing when it cannot be written; reads go on', async () => {
  const { audit } = world.store
  const { append } = audit
  const before = (await world.api.get('/api/sandboxes')).body.length
  audit.append = async () => {
    throw new ServiceError('unavailable', 'the database does not answer')
  }
  try {
    assert.equal((await world.api.post('/api/sandboxes', {})).status, 503)
    assert.equal((await world.api.get('/api/sandboxes')).body.length, before)
  } finally {
    audit.append = append
  }
})

test('audit: an export is a whole chain that ends at the head', async () => {
  await world.api.post('/api/volumes', { name: 'audited' })
  const { text } = await world.api.get('/api/audit/export')
  const verifier = new AuditVerifier()
  for (const line of text.trimEnd().split('\n')) verifier.take(JSON.parse(line))
  assert.deepEqual(verifier.faults, [])
  const { body: head } = await world.api.get('/api/audit/head')
  assert.deepEqual(verifier.head, { number: head.number, hash: head.hash })
  await world.api.post('/api/audit/head')
  const { body: events } = await world.api.get('/api/events?follow=false&type=audit.head')
  const last = events.events.at(-1)
  assert.equal(last.data.number, head.number + 1, 'the call is in it too')
})

test('audit: another organisation sees nothing of it, and acts of the operator are in both chains', async () => {
  const { body: strange } = await world.stranger.get('/api/audit')
  assert.ok(!JSON.stringify(strange).includes(world.orgId))
  const { operator } = world
  const { body: made } = await operator.post('/api/orgs', { name: 'Reef' })
  await operator.post(`/api/orgs/${made.id}/suspend`, { reason: 'why' })
  const { body: own } = await operator.get('/api/operator/audit?limit=2')
  assert.deepEqual(
    own.map(({ operation }: ChainedEntry) => operation),
    ['suspendOrganisation', 'createOrganisation'],
  )
  const { body: theirs } = await operator.get(`/api/orgs/${made.id}/audit`)
  assert.deepEqual(
    theirs.map(({ operation, actorType, subject }: ChainedEntry) => [operation, actorType, subject['reason']]),
    [['suspendOrganisation', 'operator', 'why']],
  )
  for (const path of ['/api/operator/audit', `/api/orgs/${made.id}/audit`])
    assert.equal((await world.api.get(path)).status, 403)
})
