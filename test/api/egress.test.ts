/** What sandboxes may reach, by the SDK: policies, layers and the log. What holds them is in `test/e2e/egress*.test.ts`. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Atoll, InvalidRequestError, NotFoundError, Sandbox } from '../../sdk/src/index.ts'
import type { EgressEntry } from '../../src/sandbox/index.ts'
import { useWorld } from '../support/world.ts'

let client: Atoll
const world = useWorld({}, async () => {
  client = new Atoll({ url: world.origin, apiKey: world.api.key })
})

const open = { state: 'open', policy: null, layers: [], stores: [], secrets: [] }

/** What a host reports. */
function reported(sandbox: Sandbox, entry: Partial<EgressEntry>): void {
  world.sandboxes.egressLog?.add({
    ...{ sandbox: sandbox.id, time: Date.now(), decision: 'allowed', protocol: 'tls', host: 'a.example', port: 443 },
    ...{ sent: 1, received: 2, ms: 3 },
    ...entry,
  })
}

test('egress: a policy of the creation is told in its normal form, and changed while the sandbox runs', async () => {
  const sandbox = await Sandbox.create({ client, egress: { allow: ['A.example:443', '198.51.100.7'] } })
  const told = await sandbox.egress.get()
  assert.equal(told.state, 'confined')
  assert.deepEqual(told.policy, {
    mode: 'list',
    allow: [{ host: 'a.example', ports: [[443, 443]] }, { cidr: '198.51.100.7/32' }],
    deny: [],
    logOnly: false,
  })
  assert.deepEqual(
    told.layers.map(({ source, allow }) => [source, allow.map(({ id }) => id)]),
    [['creation', ['creation.allow[0]', 'creation.allow[1]']]],
  )
  await sandbox.egress.deny('198.51.100.7')
  const { policy } = await sandbox.egress.allow('a.EXAMPLE:443', { host: '*.b.example', ports: ['8000-8010'] })
  assert.deepEqual(policy, {
    mode: 'list',
    allow: [
      { host: 'a.example', ports: [[443, 443]] },
      { host: '*.b.example', ports: [[8000, 8010]] },
    ],
    deny: [{ cidr: '198.51.100.7/32' }],
    logOnly: false,
  })
  assert.equal(world.machines.egress.refreshed.filter((id) => id === sandbox.id).length, 2)
  const wrong = sandbox.egress.allow('https://a.example')
  await assert.rejects(
    wrong,
    (error) => error instanceof InvalidRequestError && error.details['field'] === 'egress.allow[2]',
  )
  assert.equal((await sandbox.egress.set({ mode: 'all' })).state, 'open')
  await sandbox.delete()
})

test('egress: one without a policy is open, and a hibernated one is changed asleep', async () => {
  const sandbox = await Sandbox.create({ client })
  const { builtIn: _builtIn, ...told } = await sandbox.egress.get()
  assert.deepEqual(told, open)
  await sandbox.hibernate()
  assert.equal((await sandbox.egress.set({ mode: 'none' })).state, 'confined')
  assert.equal((await sandbox.info()).status, 'hibernated')
  await sandbox.delete()
})

test('egress: a fork inherits what its checkpoint says, unless it says otherwise', async () => {
  const sandbox = await Sandbox.create({ client, egress: { mode: 'none' }, egressAllowlist: ['a.example'] })
  const checkpoint = await sandbox.checkpoint({ kind: 'disk_only' })
  const [same, wider] = [await checkpoint.fork(), await checkpoint.fork({ egress: { allow: ['b.example'] } })]
  assert.equal((await same.egress.get()).policy?.mode, 'none')
  const { layers } = await wider.egress.get()
  assert.deepEqual(
    layers.map(({ source, allow }) => [source, allow.map(({ host }) => host)]),
    [
      ['store', ['a.example']],
      ['creation', ['b.example']],
    ],
  )
  for (const one of [sandbox, same, wider]) await one.delete()
  await checkpoint.delete()
})

test('egress: the policy of the organisation is a layer of each of its sandboxes, and of no other', async () => {
  const sandbox = await Sandbox.create({ client })
  const before = world.machines.egress.refreshed.length
  const set = await client.egress.set({ deny: ['paste.example'] })
  assert.deepEqual([set.refreshed, set.failures], [world.machines.egress.refreshed.length - before, []])
  assert.ok(set.refreshed >= 1)
  assert.deepEqual((await client.egress.get())?.deny, [{ host: 'paste.example' }])
  const { state, layers } = await sandbox.egress.get()
  assert.deepEqual([state, layers[0]?.deny], ['confined', [{ id: 'organisation.deny[0]', host: 'paste.example' }]])
  const other = new Atoll({ url: world.origin, apiKey: world.stranger.key })
  assert.equal(await other.egress.get(), null)
  await assert.rejects(Sandbox.connect(sandbox.id, { client: other }), NotFoundError)
  await client.egress.clear()
  assert.deepEqual((await sandbox.egress.get()).layers, [])
  await sandbox.delete()
})

test('egress: what a sandbox has asked for is read by number and decision, and followed', async () => {
  const sandbox = await Sandbox.create({ client })
  reported(sandbox, { secrets: ['TOKEN'] })
  reported(sandbox, { decision: 'denied', protocol: 'https', rule: 'creation.deny[0]', path: '/x', method: 'GET' })
  const [first, second] = await sandbox.egress.log()
  const { ts, ...rest } = first ?? {}
  assert.match(String(ts), /^\d{4}-.*Z$/)
  assert.deepEqual(rest, {
    ...{ number: 1, decision: 'allowed', protocol: 'tls', host: 'a.example', port: 443 },
    ...{ secrets: ['TOKEN'], sentBytes: 1, receivedBytes: 2, durationMs: 3 },
  })
  assert.deepEqual(await sandbox.egress.log({ decision: 'denied' }), [second])
  assert.deepEqual(await sandbox.egress.log({ after: 'newest', limit: 1 }), [second])
  assert.deepEqual(await sandbox.egress.log({ after: 2 }), [])
  const seen: number[] = []
  for await (const { number } of sandbox.egress.follow({ after: 1 })) {
    seen.push(number)
    if (number === 2) reported(sandbox, {})
    if (number === 3) break
  }
  assert.deepEqual(seen, [2, 3])
  const denied = []
  for await (const event of client.events({ sandbox: sandbox.id, type: 'sandbox.egress.denied', follow: false }))
    denied.push(event.data)
  assert.equal(denied.length, 1)
  await sandbox.delete()
})
