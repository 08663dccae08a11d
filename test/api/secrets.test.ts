import assert from 'node:assert/strict'
import { readFile, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { SecretStore } from '@opencomputer/sdk'
import { Atoll, ConflictError, NotFoundError } from '../../sdk/src/index.ts'
import type { StoreChanged } from '../../src/secret/index.ts'
import { ApiClient } from '../support/api-client.ts'
import { beginAtoll, type RunOptions } from '../support/command-line.ts'
import { valuesOf } from '../support/database.ts'
import { operatorKey, useWorld } from '../support/world.ts'

const world = useWorld({ secretLimits: { storesMax: 40, secretsPerStoreMax: 3, valueBytesMax: 1024, hostsMax: 3 } })
const value = 'the-value-of-the-test-0123456789'

let count = 0
const newName = () => `store-${++count}`

async function newStore(body: object = {}): Promise<{ id: string; name: string; path: string }> {
  const { status, text, body: made } = await world.api.post('/api/secret-stores', { name: newName(), ...body })
  assert.equal(status, 201, text)
  return { id: made.id, name: made.name, path: `/api/secret-stores/${made.id}` }
}

/** Changes that a listener is told, as it is answered by `refreshed`. */
function listening(
  t: TestContext,
  refreshed: () => Promise<{ refreshed: number; failures: { sandboxId: string; error: string }[] }>,
) {
  const told: StoreChanged[] = []
  t.after(
    world.secrets.onChange(async (_orgId, change) => {
      told.push(change)
      return await refreshed()
    }),
  )
  return told
}

test('secret store: it is made, listed by name, changed and deleted; a name is taken once', async () => {
  const { api } = world
  const made = await api.post('/api/secret-stores', { name: 'b-store', egressAllowlist: ['API.Example.com', '*'] })
  assert.equal(made.status, 201, made.text)
  const { id, orgId, createdAt, updatedAt } = made.body
  assert.match(id, /^ss-[a-z0-9]{16}$/)
  assert.deepEqual(made.body, {
    ...{ id, orgId: world.orgId, name: 'b-store', egressAllowlist: ['api.example.com', '*'], isDefault: false },
    ...{ createdAt, updatedAt },
  })
  assert.equal(orgId, world.orgId)
  const headers = { 'idempotency-key': 'a-store' }
  const first = await api.post('/api/secret-stores', { name: 'a-store' }, { headers })
  assert.deepEqual((await api.post('/api/secret-stores', { name: 'a-store' }, { headers })).body, first.body)
  assert.deepEqual(first.body.egressAllowlist, [])
  assert.deepEqual((await api.get('/api/secret-stores')).body, [first.body, made.body])
  const taken = await api.post('/api/secret-stores', { name: 'a-store' })
  assert.deepEqual([taken.status, taken.body.code, taken.body.field], [409, 'conflict', 'name'])
  const path = `/api/secret-stores/${id}`
  assert.equal((await api.put(path, { name: 'a-store' })).status, 409)
  const renamed = await api.put(path, { name: 'c-store' })
  assert.deepEqual([renamed.status, renamed.body.name, renamed.body.egressAllowlist.length], [200, 'c-store', 2])
  assert.deepEqual((await api.put(path, { egressAllowlist: [], isDefault: true })).body.egressAllowlist, [])
  assert.equal((await api.get(path)).body.isDefault, true)
  assert.equal((await api.delete(path)).status, 204)
  for (const method of ['GET', 'DELETE'] as const) assert.equal((await api.raw(method, path)).status, 404)
  assert.equal((await api.get('/api/secret-stores/a-store')).status, 400, 'a name is no id')
})

test('secret: what a client sends is checked, and each error names its field and no value', async () => {
  const { api } = world
  const { path } = await newStore()
  const put = (name: string, body: object) => api.put(`${path}/secrets/${name}`, body)
  for (const [name, body, field] of [
    ['A', {}, 'value'],
    ['A', { value: '' }, 'value'],
    ['A', { value: 7 }, 'value'],
    ['A', { value: `${value}\0` }, 'value'],
    ['A', { value: value.repeat(40) }, 'value'],
    ['1A', { value }, 'name'],
    ['a-b', { value }, 'name'],
    ['a'.repeat(65), { value }, 'name'],
    ['A', { value, allowedHosts: [''] }, 'allowedHosts.0'],
    ['A', { value, allowedHosts: ['ok.example', 'https://example.com'] }, 'allowedHosts.1'],
    ['A', { value, allowedHosts: ['example.com:443'] }, 'allowedHosts.0'],
    ['A', { value, allowedHosts: ['10.0.0.1'] }, 'allowedHosts.0'],
    ['A', { value, allowedHosts: ['a', 'b', 'c', 'd'] }, 'allowedHosts'],
    ['A', { value, in: [] }, 'in'],
    ['A', { value, in: ['cookie'] }, 'in.0'],
    ['A', { value, placeholder: 'short-{4}' }, 'placeholder'],
    ['A', { value, sign: { type: 'hmac' } }, 'sign.type'],
    ['A', { value, sign: { type: 'aws-sigv4', accessKeyId: 'a-b' } }, 'sign.accessKeyId'],
    ['A', { value, sign: { type: 'aws-sigv4', accessKeyId: 'A' } }, 'sign.accessKeyId'],
  ] as const) {
    const answer = await put(name, body)
    assert.deepEqual([answer.status, answer.body.field], [400, field], answer.text)
    assert.ok(!answer.text.includes(value), answer.text)
  }
  const broken = await api.raw('PUT', `${path}/secrets/A`, { body: `{"value":"${value}",` })
  assert.equal(broken.status, 400)
  assert.ok(!broken.text.includes(value))
  for (const body of [{ name: '' }, { name: ' x' }, { name: 'x\n' }, {}, { name: 'x'.repeat(129) }])
    assert.equal((await api.post('/api/secret-stores', body)).body.field, 'name')
  const wrong = await api.post('/api/secret-stores', { name: newName(), egressAllowlist: ['ok.example', 'a/b'] })
  assert.deepEqual([wrong.status, wrong.body.field], [400, 'egressAllowlist.1'])
  for (const name of ['A', 'B', 'C']) assert.equal((await put(name, { value })).status, 200)
  assert.deepEqual([(await put('D', { value })).status, (await put('A', { value })).status], [403, 200])
  assert.equal((await api.put('/api/secret-stores/ss-0123456789abcdef/secrets/A', { value })).status, 404)
  assert.equal((await api.put('/api/secret-stores/none/secrets/A', { value })).status, 400)
  assert.deepEqual(
    [(await api.delete(`${path}/secrets/D`)).status, (await api.delete(`${path}/secrets/C`)).status],
    [404, 204],
  )
})

test('secret: it is listed with its rules, replaced whole, and stored sealed', async () => {
  const { api } = world
  const { id, path } = await newStore()
  const rules = { allowedHosts: ['*.Example.com'], in: ['query', 'header'], placeholder: 'github' }
  const set = await api.put(`${path}/secrets/TOKEN`, { value, ...rules })
  assert.deepEqual(set.body, { name: 'TOKEN', status: 'set', refreshed: 0, failures: [], isComplete: true })
  const [listed] = (await api.get(`${path}/secrets`)).body
  const { id: secretId, createdAt, updatedAt } = listed
  assert.deepEqual(listed, {
    ...{ id: secretId, storeId: id, name: 'TOKEN', allowedHosts: ['*.example.com'], in: ['header', 'query'] },
    ...{ placeholder: 'github', createdAt, updatedAt },
  })
  await api.put(`${path}/secrets/TOKEN`, { value: 'another' })
  const [replaced] = (await api.get(`${path}/secrets`)).body
  assert.deepEqual(replaced, {
    ...{ ...listed, allowedHosts: [], in: ['header', 'basic', 'body'], placeholder: 'sealed' },
    updatedAt: replaced.updatedAt,
  })
  await api.put(`${path}/secrets/KEY`, { value, sign: { type: 'aws-sigv4' } })
  const [signing] = (await api.get(`${path}/secrets`)).body
  assert.deepEqual([signing.sign, signing.in], [{ type: 'aws-sigv4', accessKeyId: 'AWS_ACCESS_KEY_ID' }, []])
  const rows = await valuesOf(world.store.databaseUrl, 'select sealed_value from secrets')
  assert.ok(rows.every((row) => /^[0-9a-f]{8}\.v1\.[\w-]+$/.test(String(row))))
})

test('secret: no answer, log, audit entry, event or row has a value, and the audit says what was done', async () => {
  const { api, store } = world
  const { id, path } = await newStore()
  const headers = { 'idempotency-key': 'a-secret' }
  const answers = [
    await api.put(`${path}/secrets/HIDDEN`, { value, allowedHosts: ['a.example'] }, { headers }),
    await api.put(`${path}/secrets/HIDDEN?value=${value}`, { value }),
    await api.get(`${path}/secrets`),
    await api.get(path),
    await api.put(`${path}/secrets/HIDDEN`, { value: { text: value } }),
    await api.post('/api/secret-stores', { name: newName(), value }),
    await api.delete(`${path}/secrets/HIDDEN`),
    await api.get('/api/audit'),
    await api.get('/api/events?follow=false'),
  ]
  for (const { text } of answers) assert.ok(!text.includes(value), text)
  assert.ok(!world.logs.some((line) => JSON.stringify(line).includes(value)))
  const entries = answers[7]!.body.filter((entry: { operation: string }) => entry.operation === 'setSecret')
  const subject = { storeId: id, secretName: 'HIDDEN', allowedHosts: ['a.example'] }
  assert.ok(
    entries.some((entry: { subject: object }) => JSON.stringify(entry.subject) === JSON.stringify(subject)),
    JSON.stringify(entries),
  )
  const tables = await valuesOf(
    store.databaseUrl,
    `select table_name from information_schema.tables where table_schema = 'public'`,
  )
  for (const table of tables) {
    const rows = await valuesOf(store.databaseUrl, `select one::text from "${String(table)}" one`)
    assert.ok(!rows.some((row) => String(row).includes(value)), String(table))
  }
})

test('secret: those who run with a store are told of each change, and the answer says what became of them', async (t) => {
  const { api } = world
  const failures = [{ sandboxId: 'sb-0123456789abcdef', error: 'it is busy' }]
  const told = listening(t, async () => ({ refreshed: 2, failures }))
  const { id: storeId, name: storeName, path } = await newStore()
  assert.deepEqual(told.splice(0), [], 'nobody has a new store yet')
  const set = await api.put(`${path}/secrets/A`, { value })
  assert.deepEqual(set.body, { name: 'A', status: 'set', refreshed: 2, failures, isComplete: true })
  await api.delete(`${path}/secrets/A`)
  await api.put(path, { egressAllowlist: ['a.example'] })
  assert.deepEqual(
    told.splice(0),
    Array.from({ length: 3 }, () => ({ storeId, storeName, isDefault: false })),
  )
  await api.put(path, { name: `${storeName}-2`, isDefault: true })
  assert.deepEqual(told.splice(0), [
    { storeId, storeName: `${storeName}-2`, isDefault: true },
    { storeId, storeName, isDefault: true },
  ])
  await api.put(path, { isDefault: false })
  assert.equal(told.splice(0)[0]?.isDefault, true, 'those that lose it are told')
  await api.delete(path)
  assert.deepEqual(
    told.splice(0).map((change) => change.storeName),
    [`${storeName}-2`],
  )
  const { path: applied } = await newStore({ isDefault: true })
  assert.equal(told.length, 1, 'a new store for all is in force at once')
  await api.delete(applied)
})

test('secret: a refresh that fails leaves the secret set', async (t) => {
  const { path } = await newStore()
  listening(t, async () => Promise.reject(new Error('no host')))
  const set = await world.api.put(`${path}/secrets/A`, { value })
  assert.deepEqual([set.status, set.body.refreshed, set.body.isComplete], [200, 0, false])
  assert.equal((await world.api.get(`${path}/secrets`)).body.length, 1)
})

test('secret: a chain layers default stores, named ones in order, and what came with creations', async () => {
  const { api, secrets, orgId } = world
  const b = await newStore({ name: 'z-default', isDefault: true, egressAllowlist: ['z.example'] })
  const a = await newStore({ name: 'y-default', isDefault: true })
  const named = await newStore({ egressAllowlist: ['n.example'] })
  const set = (path: string, name: string, text: string, body = {}) =>
    api.put(`${path}/secrets/${name}`, { value: text, ...body })
  await set(a.path, 'FROM_A', 'a')
  await set(a.path, 'BOTH', 'a')
  await set(b.path, 'BOTH', 'b')
  await set(b.path, 'NAMED', 'b')
  await set(named.path, 'NAMED', 'named', { allowedHosts: ['n.example'], placeholder: 'npm' })
  await set(named.path, 'INLINE', 'named')
  await secrets.putInline(orgId, 'creation-1', { INLINE: { value: 'old' } })
  await secrets.putInline(orgId, 'creation-1', { INLINE: { value: 'inline', in: ['path'] }, OWN: { value } })
  const of = { orgId, stores: [named.name, 'no-such', 'no-such'], inline: ['creation-1', 'creation-0'] }
  const chain = await secrets.openChain(of)
  const ofStore = (store: typeof a, egressAllowlist: string[] = []) => ({
    id: store.id,
    name: store.name,
    egressAllowlist,
  })
  assert.deepEqual(chain.stores, [ofStore(a), ofStore(b, ['z.example']), ofStore(named, ['n.example'])])
  assert.deepEqual(chain.missing, ['no-such'])
  assert.deepEqual(Object.fromEntries(chain.secrets.map((one) => [one.name, one.value])), {
    ...{ FROM_A: 'a', BOTH: 'b', NAMED: 'named', INLINE: 'inline', OWN: value },
  })
  const rules = chain.secrets.find(({ name }) => name === 'NAMED')
  assert.deepEqual(rules, {
    ...{ name: 'NAMED', storeName: named.name, allowedHosts: ['n.example'], places: ['header', 'basic', 'body'] },
    ...{ shape: 'npm', value: 'named' },
  })
  const described = await secrets.chain(of)
  assert.deepEqual(described, { ...chain, secrets: chain.secrets.map(({ value: _value, ...rest }) => rest) })
  const again = await secrets.chain({ orgId, stores: [named.name, 'y-default'], inline: [] })
  assert.deepEqual(
    again.stores.map(({ name }) => name),
    ['z-default', named.name, 'y-default'],
  )
  assert.deepEqual((await secrets.chain({ ...of, orgId: world.strangerOrgId })).secrets, [])
  assert.ok(!(await api.get('/api/secret-stores')).body.some(({ name }: { name: string }) => name === ''))
  await secrets.removeInline(orgId, 'creation-1')
  assert.ok(!(await secrets.chain(of)).secrets.some(({ name }) => name === 'OWN'))
  for (const { path } of [a, b]) await api.delete(path)
  assert.deepEqual(
    [await secrets.hasDefaults(orgId), (await secrets.chain({ orgId, stores: [], inline: [] })).stores],
    [false, []],
  )
})

test('secret: inline ones are checked before anything is kept', async () => {
  const { secrets, orgId } = world
  for (const [given, field] of [
    [{ 'a-b': { value } }, 'secrets.a-b'],
    [{ A: { value: '' } }, 'secrets.A.value'],
    [{ A: { value, allowedHosts: ['x/y'] } }, 'secrets.A.allowedHosts.0'],
    [{ A: { value }, B: { value }, C: { value }, D: { value } }, 'secrets'],
  ] as const)
    await assert.rejects(secrets.putInline(orgId, 'creation-2', given), (error: { details?: { field?: string } }) => {
      assert.equal(error.details?.field, field)
      return true
    })
  assert.deepEqual((await secrets.chain({ orgId, stores: [], inline: ['creation-2'] })).secrets, [])
})

test('secret: a key needs the scope, which one with a name prefix has not', async () => {
  const { api, origin } = world
  const keyWith = async (body: object) => {
    const { status, text, body: made } = await api.post('/api/keys', body)
    assert.equal(status, 201, text)
    return new ApiClient(origin, made.key)
  }
  const without = await keyWith({ scopes: ['sandbox:read', 'egress'] })
  assert.equal((await without.get('/api/secret-stores')).status, 403)
  const able = await keyWith({ scopes: ['secret'] })
  assert.equal((await able.get('/api/secret-stores')).status, 200)
  assert.equal((await able.get('/api/sandboxes')).status, 403)
  const bound = await keyWith({ namePrefix: 'team-' })
  for (const [method, path] of [
    ['GET', '/api/secret-stores'],
    ['POST', '/api/secret-stores'],
    ['GET', `${(await newStore()).path}/secrets`],
  ] as const)
    assert.equal((await bound.raw(method, path, method === 'POST' ? { body: '{"name":"team-x"}' } : {})).status, 403)
})

test('secret: OpenComputer has its SecretStore class', async () => {
  const connection = { apiUrl: world.origin, apiKey: world.api.key }
  const store = await SecretStore.create({ name: newName(), egressAllowlist: ['api.example.com'], ...connection })
  assert.deepEqual(store.egressAllowlist, ['api.example.com'])
  assert.ok((await SecretStore.list(connection)).some(({ id }) => id === store.id))
  assert.deepEqual(await SecretStore.get(store.id, connection), store)
  const updated = await SecretStore.update(store.id, { name: newName(), egressAllowlist: [], ...connection })
  assert.deepEqual(updated.egressAllowlist, [])
  await SecretStore.setSecret(store.id, 'TOKEN', value, { allowedHosts: ['api.example.com'], ...connection })
  await SecretStore.setSecret(store.id, 'PLAIN', value, connection)
  const listed = await SecretStore.listSecrets(store.id, connection)
  assert.deepEqual(
    listed.map(({ name, allowedHosts }) => [name, allowedHosts]),
    [
      ['PLAIN', []],
      ['TOKEN', ['api.example.com']],
    ],
  )
  await SecretStore.deleteSecret(store.id, 'TOKEN', connection)
  await SecretStore.deleteSecret(store.id, 'TOKEN', connection)
  await SecretStore.delete(store.id, connection)
  await assert.rejects(SecretStore.get(store.id, connection), /404/)
})

test('sdk: client.secrets', async () => {
  const { secrets } = new Atoll({ url: world.origin, apiKey: world.api.key })
  const made = await secrets.createStore({ name: newName(), egressAllowlist: ['a.example'] })
  assert.deepEqual([await secrets.getStore(made.id), await secrets.storeNamed(made.name)], [made, made])
  await assert.rejects(secrets.createStore({ name: made.name }), ConflictError)
  await assert.rejects(secrets.storeNamed('no-such'), NotFoundError)
  assert.equal(
    (await secrets.updateStore(made.id, { isDefault: false, egressAllowlist: [] })).egressAllowlist.length,
    0,
  )
  const options = { allowedHosts: ['a.example'], in: ['header' as const], placeholder: 'uuid' }
  assert.equal((await secrets.set(made.id, 'A', value, options)).status, 'set')
  const [listed] = await secrets.list(made.id)
  assert.deepEqual([listed?.name, listed?.placeholder, listed?.in], ['A', 'uuid', ['header']])
  await secrets.delete(made.id, 'A')
  await assert.rejects(secrets.delete(made.id, 'A'), NotFoundError)
  await secrets.deleteStore(made.id)
  assert.ok(!(await secrets.listStores()).some(({ id }) => id === made.id))
})

test('atoll secret: a value is standard input or a variable, never an argument', async () => {
  const name = newName()
  const run = async (args: string[], options: RunOptions = {}) =>
    await beginAtoll(world, ['secret', ...args], options).ended
  const said = async (args: string[], options: RunOptions = {}) => {
    const { status, stdout, stderr } = await run(args, options)
    assert.equal(status, 0, stderr)
    assert.ok(!`${stdout}${stderr}`.includes(value))
    return stdout
  }
  assert.match(await said(['store', 'create', name, '--allow', 'a.example']), /^ss-\w{16}\n$/)
  const rules = ['--host', 'api.openai.com', '--placeholder', 'openai']
  assert.equal(await said(['set', name, 'OPENAI_API_KEY', ...rules], { input: `${value}\n` }), '')
  await said(['set', name, 'OTHER', '--from-env', 'HELD', '--in', 'query', 'body'], { env: { HELD: value } })
  const { secrets } = await world.secrets.openChain({ orgId: world.orgId, stores: [name], inline: [] })
  assert.deepEqual(
    secrets.map((one) => [one.name, one.value]),
    [
      ['OPENAI_API_KEY', value],
      ['OTHER', value],
    ],
  )
  assert.match(
    await said(['list', name]),
    /^NAME +HOSTS +IN +PLACEHOLDER +SET\nOPENAI_API_KEY +api\.openai\.com +header basic body +openai/,
  )
  assert.equal(await said(['store', 'allow', name, '*.b.example']), 'a.example\n*.b.example\n')
  assert.equal(await said(['store', 'allow', name, '--rm', 'a.example']), '*.b.example\n')
  assert.equal((await run(['store', 'allow', name, '--rm', '*.b.example'])).status, 2)
  assert.equal(await said(['store', 'allow', name, '--any']), '')
  assert.match(await said(['store', 'show', name]), /secrets +\["OPENAI_API_KEY","OTHER"\]/)
  assert.match(await said(['store', 'set', name, '--default']), /isDefault +true/)
  assert.match(await said(['store', 'ls']), new RegExp(`${name} +ss-\\w+ +all sandboxes +any`))
  assert.match(await said(['store', 'set', name, '--no-default']), /isDefault +false/)
  await said(['rm', name, 'OTHER'])
  assert.equal(await said(['ls', name, '-q']), 'OPENAI_API_KEY\n')
  for (const [args, status, options] of [
    [['set', name, 'A', value], 2],
    [['set', name, 'A'], 2, { input: '\n' }],
    [['set', name, 'A', '--from-env', 'NOT_SET'], 2],
    [['set', 'no-such', 'A'], 5, { input: value }],
    [['set', name, 'A', '--access-key-id', 'B'], 2, { input: value }],
    [['store', 'rm', name], 2],
  ] as const)
    assert.equal((await run([...args], options)).status, status, args.join(' '))
  await said(['store', 'rm', name, '--yes'])
})

test('secret: the key is rotated while all is in use, by the operator alone', async () => {
  const { api, operator, secrets, orgId } = world
  const { name, path } = await newStore()
  await api.put(`${path}/secrets/A`, { value })
  const sealed = await secrets.seal(orgId, 'the key of an authority')
  await world.store.egress.insertAuthority({ id: 'ca-0123456789abcdef', orgId, certificate: 'c', sealedKey: sealed })
  assert.equal((await api.post('/api/operator/secrets/rotate')).status, 403)
  const file = join(world.dataDir, 'secrets-key')
  const [before = ''] = (await readFile(file, 'utf8')).split('\n')
  const rotated = await operator.post('/api/operator/secrets/rotate')
  assert.equal(rotated.status, 200, rotated.text)
  const { keyId, resealed, unreadable, formerKeys } = rotated.body
  assert.deepEqual([unreadable, formerKeys], [0, 1])
  assert.ok(resealed >= 2)
  assert.deepEqual(await world.store.secrets.keysInUse(), [keyId])
  assert.equal((await readFile(file, 'utf8')).split('\n')[1], before, 'kept while a text of it may be on its way')
  const open = async () => (await secrets.openChain({ orgId, stores: [name], inline: [] })).secrets[0]?.value
  assert.equal(await open(), value)
  const resealedKey = (await world.store.egress.authority('ca-0123456789abcdef'))?.sealedKey ?? ''
  assert.equal(await secrets.unseal(orgId, resealedKey), 'the key of an authority')
  const printed = await beginAtoll(world, ['secret', 'rotate-key'], { env: { ATOLL_OPERATOR_KEY: operatorKey } }).ended
  assert.match(printed.stdout, /^keyId +[0-9a-f]{8}\nresealed +\d+\nunreadable +0\nformerKeys +2\n$/)
  assert.equal(await open(), value)
})

test('secret: values that are set while the key is rotated are kept', async () => {
  const { secrets, orgId } = world
  const names = ['A', 'B', 'C']
  const stores = await Promise.all(names.map(() => newStore()))
  const setAll = async (round: number) => {
    for (const { path } of stores)
      for (const name of names) await world.api.put(`${path}/secrets/${name}`, { value: `${name} ${round}` })
  }
  const rotateAll = async () => {
    for (let round = 0; round < 4; round += 1) await secrets.rotateKey()
  }
  await setAll(0)
  await Promise.all([setAll(1), rotateAll()])
  const chain = await secrets.openChain({ orgId, stores: stores.map(({ name }) => name), inline: [] })
  assert.deepEqual(
    chain.secrets.map((one) => one.value),
    ['A 1', 'B 1', 'C 1'],
  )
  const { keyId } = await secrets.rotateKey()
  assert.deepEqual(await world.store.secrets.keysInUse(), [keyId])
})

test('secret: without its key a value is told to be closed, and no row is lost', async () => {
  const { api, secrets, orgId } = world
  const { name, path } = await newStore()
  await api.put(`${path}/secrets/A`, { value })
  const file = join(world.dataDir, 'secrets-key')
  await rename(file, `${file}.away`)
  const operator = await world.operator.post('/api/operator/secrets/rotate')
  assert.equal(operator.status, 503, operator.text)
  assert.match(operator.body.error, /neither ATOLL_SECRETS_KEY nor secrets-key in the data directory has/)
  assert.equal((await api.put(`${path}/secrets/B`, { value })).status, 503)
  await assert.rejects(secrets.openChain({ orgId, stores: [name], inline: [] }), /ATOLL_SECRETS_KEY/)
  assert.equal((await secrets.chain({ orgId, stores: [name], inline: [] })).secrets.length, 1)
  assert.equal((await api.get(`${path}/secrets`)).body.length, 1)
  await rename(`${file}.away`, file)
  assert.equal((await secrets.openChain({ orgId, stores: [name], inline: [] })).secrets[0]?.value, value)
  assert.equal((await api.put(`${path}/secrets/B`, { value })).status, 200)
})

test('secret: an organisation has no more stores than it may', async () => {
  for (;;) {
    const { status, body } = await world.api.post('/api/secret-stores', { name: newName() })
    if (status === 201) continue
    assert.deepEqual([status, body.code, body.limit], [403, 'quota_exceeded', 40])
    return
  }
})
