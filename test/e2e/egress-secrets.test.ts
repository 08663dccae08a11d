/** Secrets over the life of a sandbox: edits, sleep, forks, the end of the proxy, and where their values are never found. */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { after, before, test } from 'node:test'
import { runBackup } from './backup-programs.ts'
import { among, heldInBackup, heldInDatabase, heldInFolder } from './egress/held.ts'
import { Inside } from './egress/inside.ts'
import { pairs } from './egress/web.ts'
import { EgressWorld } from './egress/world.ts'
import { forkOf, takeCheckpoint } from './sandbox-calls.ts'
import { heldInMemory, heldOnDisk, processesOf } from './sandbox-insides.ts'
import { AtollServer } from './server.ts'

const opened = new AsyncDisposableStack()
let world: EgressWorld
let server: AtollServer
before(async () => {
  world = opened.use(await EgressWorld.make())
  server = opened.use(await AtollServer.start({ env: { ...world.env, ATOLL_LOG_LEVEL: 'debug' } }))
})
after(() => opened.disposeAsync())

const newValue = () => `value-${randomBytes(24).toString('hex')}`

interface Store {
  id: string
  name: string
}

async function makeStore(name: string, body: object = {}): Promise<Store> {
  return (await server.json('POST', '/api/secret-stores', { name, ...body })) as Store
}

async function setSecret(store: Store, name: string, body: object): Promise<{ refreshed: number }> {
  return (await server.json('PUT', `/api/secret-stores/${store.id}/secrets/${name}`, body)) as { refreshed: number }
}

/** What `api.test` gets of a text in a field. */
async function sent(inside: Inside, text = '$TOKEN', host = 'api.test'): Promise<string | undefined> {
  const mark = await world.mark()
  await inside.sh(`curl -sS -k -o /dev/null -H "X-Key: ${text}" https://${host}/sent`)
  const found = (await world.requestsSince(mark)).find(({ path }) => path === '/sent')
  return found === undefined ? undefined : pairs(found)['x-key']
}

/** A process inside that sends what its environment has whenever it is asked to, for as long as it lives. */
async function startSender(inside: Inside): Promise<void> {
  await inside.write(
    '/root/sender.mjs',
    Buffer.from(`
import { existsSync, rmSync, writeFileSync } from 'node:fs'
setInterval(async () => {
  if (!existsSync('/tmp/ask')) return
  rmSync('/tmp/ask')
  const answer = await fetch('https://api.test/inherited', { headers: { 'x-key': process.env.TOKEN } }).catch((error) => ({ status: String(error.cause ?? error) }))
  writeFileSync('/tmp/answer', String(answer.status))
}, 20)
writeFileSync('/tmp/answer', 'ready')`),
  )
  await inside.start('node --no-warnings /root/sender.mjs', '/tmp/sender')
  await inside.says('/tmp/answer', /ready/)
}

/** What `api.test` gets from that process. */
async function inherited(inside: Inside): Promise<string | undefined> {
  const mark = await world.mark()
  await inside.sh('rm -f /tmp/answer; touch /tmp/answer /tmp/ask')
  await inside.says('/tmp/answer', /./)
  const found = (await world.requestsSince(mark)).find(({ path }) => path === '/inherited')
  return found === undefined ? undefined : pairs(found)['x-key']
}

test('stores: a change of a secret, of its hosts, and its deletion hold for what runs, from the next request on', async () => {
  const [first, second] = [newValue(), newValue()]
  const store = await makeStore('live')
  await setSecret(store, 'TOKEN', { value: first, allowedHosts: ['api.test'] })
  const inside = await Inside.make(server, world, { secretStore: 'live' })
  const placeholder = await inside.variable('TOKEN')
  assert.equal(await sent(inside), first)
  assert.equal(await sent(inside, '$TOKEN', 'second.test'), placeholder)
  // A connection that is kept takes the new value too.
  await startSender(inside)
  assert.equal(await inherited(inside), first)
  const { refreshed } = await setSecret(store, 'TOKEN', { value: second, allowedHosts: ['api.test', 'second.test'] })
  assert.equal(refreshed, 1)
  assert.equal(await inside.variable('TOKEN'), placeholder)
  assert.equal(await inherited(inside), second)
  assert.equal(await sent(inside, '$TOKEN', 'second.test'), second)
  await setSecret(store, 'TOKEN', { value: second, allowedHosts: ['second.test'] })
  assert.equal(await sent(inside), placeholder)
  await server.json('DELETE', `/api/secret-stores/${store.id}/secrets/TOKEN`)
  assert.equal(await sent(inside, placeholder, 'second.test'), placeholder)
})

test('stores: their lists restrict, and those of a creation are united with them; what the client set wins', async () => {
  const store = await makeStore('listed', { egressAllowlist: ['api.test'] })
  await setSecret(store, 'TOKEN', { value: newValue(), allowedHosts: ['api.test'] })
  await setSecret(store, 'PLAIN', { value: newValue(), allowedHosts: ['api.test'] })
  const inside = await Inside.make(server, world, {
    secretStore: 'listed',
    egressAllowlist: ['second.test'],
    envs: { PLAIN: 'mine' },
  })
  assert.equal(await inside.variable('PLAIN'), 'mine')
  const codes = await inside.sh(
    `for host in api second other; do curl -sS -k -o /dev/null -w '%{http_code} ' https://$host.test/ 2>/dev/null || true; done`,
  )
  assert.equal(codes, '200 200 000')
  const told = (await server.json('GET', `/api/sandboxes/${inside.id}/allowed-hosts`)) as Record<string, unknown>
  assert.deepEqual((told['egressAllowlist'] as string[]).toSorted(), ['api.test', 'second.test'])
  assert.equal(told['secretStore'], 'listed')
  await server.json('PUT', `/api/secret-stores/${store.id}`, { egressAllowlist: ['other.test'] })
  const later = await inside.sh(
    `for host in api second other; do curl -sS -k -o /dev/null -w '%{http_code} ' https://$host.test/ 2>/dev/null || true; done`,
  )
  assert.equal(later, '000 200 200')
})

test('secrets without hosts: their values go where the list leads, and nowhere when there is none', async () => {
  const value = newValue()
  const secrets = { TOKEN: { value, allowedHosts: [] } }
  const listed = await Inside.make(server, world, { secrets, egress: { mode: 'list', allow: ['api.test'] } })
  assert.equal(await sent(listed), value)
  const open = await Inside.make(server, world, { secrets })
  const { secrets: told } = (await server.json('GET', `/api/sandboxes/${open.id}/egress`)) as {
    secrets: { isUsed: boolean; why?: string }[]
  }
  assert.equal(told[0]?.isUsed, false)
  assert.ok(told[0]?.why)
})

test('stores: an unknown one starts nothing; names are unique; no answer has a value', async () => {
  const value = newValue()
  await assert.rejects(server.json('POST', '/api/sandboxes', { secretStore: 'nobody' }), / 400 /)
  const store = await makeStore('quiet')
  await assert.rejects(makeStore('quiet'), / 409 /)
  await setSecret(store, 'TOKEN', { value, allowedHosts: ['api.test'] })
  const answers = await Promise.all(
    ['/api/secret-stores', `/api/secret-stores/${store.id}`, `/api/secret-stores/${store.id}/secrets`].map((path) =>
      server.json('GET', path),
    ),
  )
  assert.ok(!JSON.stringify(answers).includes(value))
  await assert.rejects(setSecret(store, 'TOKEN', { value: '', allowedHosts: [] }), / 400 /)
  await assert.rejects(setSecret(store, 'TOKEN', { value, allowedHosts: [''] }), / 400 /)
  await server.json('DELETE', `/api/secret-stores/${store.id}`)
  await assert.rejects(server.json('GET', `/api/secret-stores/${store.id}`), / 404 /)
})

test('sleep and restore: placeholders stay, values are those of now, and rules hold from the first packet on', async () => {
  const [first, second] = [newValue(), newValue()]
  const store = await makeStore('sleepy', { egressAllowlist: ['api.test'] })
  await setSecret(store, 'TOKEN', { value: first, allowedHosts: ['api.test'] })
  const inside = await Inside.make(server, world, { secretStore: 'sleepy' })
  const placeholder = await inside.variable('TOKEN')
  await startSender(inside)
  const file = '/usr/local/share/ca-certificates/opensandbox-proxy.crt'
  const authority = await inside.sh(`cat ${file}`)
  // A process that tries all the time, also in the moment of its waking.
  await inside.start(
    `while true; do curl -sS -k -m 2 -o /dev/null https://${world.evil}/woken; curl -sS -m 2 -o /dev/null http://${world.evil}/woken; sleep 0.05; done`,
    '/tmp/tries',
  )
  const mark = await world.mark()
  const checkpoint = await takeCheckpoint(server, inside.id, 'full')
  await server.json('POST', `/api/sandboxes/${inside.id}/hibernate`)
  await setSecret(store, 'TOKEN', { value: second, allowedHosts: ['api.test'] })
  await server.json('POST', `/api/sandboxes/${inside.id}/wake`, {})
  assert.equal(await inside.variable('TOKEN'), placeholder)
  assert.equal(await inherited(inside), second)
  assert.equal(await inside.sh(`cat ${file}`), authority)
  await server.json('POST', `/api/sandboxes/${inside.id}/checkpoints/${checkpoint}/restore`)
  assert.equal(await inside.variable('TOKEN'), placeholder)
  assert.equal(await inherited(inside), second)
  const seen = await world.since(mark)
  assert.ok(!seen.some((entry) => entry.kind === 'tcp' && entry.address === world.evil))
})

test('forks: new processes get new placeholders, those of the dump resolve in their fork alone, no other sandbox resolves either', async () => {
  const value = newValue()
  const store = await makeStore('forked')
  await setSecret(store, 'TOKEN', { value, allowedHosts: ['api.test'] })
  const parent = await Inside.make(server, world, { secretStore: 'forked' })
  await startSender(parent)
  const checkpoint = await takeCheckpoint(server, parent.id, 'to-fork')
  const fork = new Inside(server, world, await forkOf(server, checkpoint))
  const [ofParent, ofFork] = [await parent.variable('TOKEN'), await fork.variable('TOKEN')]
  assert.notEqual(ofFork, ofParent)
  assert.equal(await sent(fork), value)
  assert.equal(await inherited(fork), value, 'a process of the dump goes on')
  assert.equal(await inherited(parent), value)
  assert.equal(await sent(parent, ofFork), ofFork, 'the parent does not know those of the fork')
  const third = await Inside.make(server, world, { secretStore: 'forked' })
  for (const foreign of [ofParent, ofFork]) assert.equal(await sent(third, foreign), foreign)
  const second = new Inside(server, world, await forkOf(server, checkpoint))
  assert.equal(await sent(second, ofFork), ofFork, 'nor do its siblings')
  const told = (await server.json('GET', `/api/sandboxes/${fork.id}/allowed-hosts`)) as Record<string, unknown>
  assert.deepEqual(told['perSecretAllowedHosts'], { TOKEN: ['api.test'] })
})

test('deleting a sandbox with its store', async () => {
  const store = await makeStore('goes')
  const inside = await Inside.make(server, world, { secretStore: 'goes' })
  await server.json('DELETE', `/api/sandboxes/${inside.id}?deleteSecretStore=true`)
  await assert.rejects(server.json('GET', `/api/secret-stores/${store.id}`), / 404 /)
})

test('values: they are nowhere inside, in saved memory, in the database, in logs, events, the egress log or a backup', async () => {
  const value = newValue()
  const canary = `canary-${randomBytes(24).toString('hex')}`
  const texts = [value, canary]
  const store = await makeStore('sought')
  await setSecret(store, 'TOKEN', {
    value,
    allowedHosts: ['api.test'],
    in: ['header', 'basic', 'body', 'query', 'path'],
  })
  const inside = await Inside.make(server, world, { secretStore: 'sought', envs: { CANARY: canary } })
  await startSender(inside)
  assert.equal(await inherited(inside), value)
  const said = await inside.sh(`
    echo $CANARY >/root/canary
    curl -sS -H "Authorization: Bearer $TOKEN" -u "x:$TOKEN" --data "a=$TOKEN" "https://api.test/$TOKEN?q=$TOKEN"
    curl -sSi --compressed -H "X-Key: $TOKEN" https://api.test/gzip; curl -sS -H "X-Key: $TOKEN" "https://api.test/redirect?to=/$TOKEN" -i`)
  const received = await world.requestsSince(0)
  assert.ok(
    received.some(({ path }) => path === `/${value}?q=${value}`),
    'all places were put in',
  )
  assert.deepEqual(among(said, texts), [], 'what comes back is masked')

  assert.deepEqual(await heldInMemory(await processesOf(inside.id), texts), [canary])
  await takeCheckpoint(server, inside.id, 'sought')
  const log = JSON.stringify(await inside.log())
  const events = await (await server.fetch('/api/events?follow=false&limit=1000')).text()
  assert.deepEqual(among(log + events, [value]), [])
  assert.deepEqual(
    await heldInDatabase(server, texts),
    [canary],
    'the variable of a creation is a record, a value is not',
  )
  const folder = await mkdtemp('/var/tmp/atoll-egress-backup-')
  try {
    const { status, output } = await runBackup(server, `${folder}/all`)
    assert.equal(status, 0, output)
    assert.deepEqual(await heldInBackup(`${folder}/all`, texts), [canary])
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
  await server.json('POST', `/api/sandboxes/${inside.id}/hibernate`)
  assert.deepEqual(await heldOnDisk(server.dataDir, texts), [canary])
  assert.deepEqual(await heldInFolder(server.dataDir, [value]), [])
  assert.deepEqual(among(server.output, [value]), [], 'nothing is logged')
})
