import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Atoll } from '../../sdk/src/index.ts'
import { beginAtoll } from '../support/command-line.ts'
import { useWorld } from '../support/world.ts'

const world = useWorld({ registries: ['ghcr.io', 'registry.example.com:5000'] })
const password = 'the-password-of-the-test'
const login = { username: 'robot', password }

test('registry: credentials are stored by organisation, and no answer and no row has the password', async () => {
  const { api, stranger, store, orgId, strangerOrgId } = world
  const stored = await api.put('/api/registries/GHCR.io', login)
  assert.equal(stored.status, 200, stored.text)
  assert.deepEqual([stored.body.host, stored.body.username], ['ghcr.io', 'robot'])
  const port = await api.put('/api/registries/registry.example.com:5000', { ...login, username: 'other' })
  assert.equal(port.status, 200, port.text)
  const listed = await api.get('/api/registries')
  assert.deepEqual(listed.body, [stored.body, port.body])
  assert.deepEqual((await api.get('/api/registries/registry.example.com%3A5000')).body, port.body)
  for (const { text } of [stored, port, listed]) assert.ok(!text.includes(password))
  assert.ok(!JSON.stringify(await store.registryCredentials.listCredentials(orgId)).includes(password))
  assert.ok(!world.logs.some((line) => JSON.stringify(line).includes(password)))
  assert.deepEqual((await stranger.get('/api/registries')).body, [])
  assert.equal((await stranger.delete('/api/registries/ghcr.io')).status, 404)
  assert.deepEqual(await store.registryCredentials.listCredentials(strangerOrgId), [])
  assert.equal((await api.delete('/api/registries/ghcr.io')).status, 204)
  for (const answer of [await api.get('/api/registries/ghcr.io'), await api.delete('/api/registries/ghcr.io')])
    assert.equal(answer.status, 404)
})

test('registry: a host that is not allowed and words that basic authentication cannot carry are refused by field', async () => {
  const { api } = world
  for (const [host, body, field] of [
    ['evil.example.com', login, 'host'],
    ['ghcr.io:443', login, 'host'],
    ['ghcr.io', { ...login, username: 'a:b' }, 'username'],
    ['ghcr.io', { ...login, username: 'a\nb' }, 'username'],
    ['ghcr.io', { ...login, password: 'a\0b' }, 'password'],
    ['ghcr.io', { ...login, password: '' }, 'password'],
    ['ghcr.io', { username: 'a' }, 'password'],
  ] as const) {
    const answer = await api.put(`/api/registries/${host}`, body)
    assert.deepEqual([answer.status, answer.body.field], [400, field], answer.text)
    assert.ok(!answer.text.includes(password))
  }
  assert.match((await api.put('/api/registries/a.example.com', login)).body.error, /those are ghcr\.io, registry/)
})

test('sdk, atoll registry: credentials are stored from standard input, listed and removed', async () => {
  const run = async (args: string[], input?: string) => await beginAtoll(world, args, { input }).ended
  const { registries } = new Atoll({ url: world.origin, apiKey: world.api.key })
  const stored = await run(['registry', 'login', 'ghcr.io', '-u', 'robot', '--password-stdin'], `${password}\n`)
  assert.deepEqual([stored.status, stored.stdout], [0, ''], stored.stderr)
  assert.match(stored.stderr, /credentials of robot at ghcr\.io are stored/)
  assert.equal((await registries.get('ghcr.io')).username, 'robot')
  assert.match((await run(['registry', 'ls'])).stdout, /^HOST +USER +STORED\nghcr\.io +robot +\S+Z\n/)
  assert.equal((await run(['registry', 'login', 'ghcr.io', '-u', 'robot'])).status, 2)
  assert.equal((await run(['registry', 'login', 'ghcr.io', '-u', 'robot', '--password-stdin'], '\n')).status, 2)
  assert.equal((await run(['registry', 'logout', 'ghcr.io'])).status, 0)
  assert.ok(!(await registries.list()).some(({ host }) => host === 'ghcr.io'))
})
