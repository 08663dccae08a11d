/** What the operator of a server sets: a proxy that all leaves by, private networks, sandboxes that wait, the key of secrets. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { Inside } from './egress/inside.ts'
import { credentials, ports } from './egress/places.ts'
import { pairs } from './egress/web.ts'
import { EgressWorld } from './egress/world.ts'
import { AtollServer } from './server.ts'
import { operatorKey } from './tenant.ts'

const value = 'v4lue-' + 'u5'.repeat(14)
const { user, password } = credentials.upstream
const opened = new AsyncDisposableStack()
let world: EgressWorld
before(async () => {
  world = opened.use(await EgressWorld.make())
})
after(() => opened.disposeAsync())

for (const [scheme, over, port] of [
  ['http', 'http', ports.proxy],
  ['socks5', 'socks', ports.socks],
] as const) {
  test(`upstream: names go to the ${scheme} proxy with the operator's password, what is refused does not`, async () => {
    const upstream = `${scheme}://${user}:${encodeURIComponent(password)}@${world.main}:${port}`
    await using server = await AtollServer.start({ env: { ...world.env, ATOLL_EGRESS_UPSTREAM: upstream } })
    const inside = await Inside.make(server, world, {
      egress: { mode: 'list', allow: ['api.test', 'other.test', 'private.test'] },
      secrets: { TOKEN: { value, allowedHosts: ['api.test'] } },
    })
    const mark = await world.mark()
    await inside.sh(`curl -sS --fail -o /dev/null -H "X-Key: $TOKEN" https://api.test/read`)
    await inside.sh(`curl -sS --fail -o /dev/null --cacert /root/world.pem https://other.test/unread`)
    await inside.sh(`curl -sS --fail -o /dev/null http://other.test/clear`)
    await inside.run(`curl -sS https://evil.test/; curl -sS http://evil.test/; curl -sS http://private.test/`)
    const seen = await world.since(mark)
    const proxied = seen.filter((entry) => entry.kind === 'proxied')
    const expected = ['api.test:443', 'other.test:443', 'other.test:80']
    assert.deepEqual(
      proxied.map((entry) => `${entry.host}:${entry.port}`),
      expected,
    )
    assert.ok(proxied.every((entry) => entry.isKnown && entry.over === over))
    const requests = await world.requestsSince(mark)
    assert.deepEqual(
      requests.map(({ path }) => path),
      ['/read', '/unread', '/clear'],
    )
    const [read] = requests
    assert.ok(read && pairs(read)['x-key'] === value)
    assert.ok(!server.output.includes(password))
    for (const name of ['evil', 'private']) assert.ok(!JSON.stringify(proxied).includes(name))
  })
}

test('private networks: a rule that names one opens it, by name or by address; no other does', async () => {
  const env = { ...world.env, ATOLL_EGRESS_PRIVATE_NETWORKS: `${world.private}/32` }
  await using server = await AtollServer.start({ env })
  const tries = `
for at in '${world.private}', 'private.test': print(status(tcp(at, 80, request('private.test', '/private'))))
print(tls('private.test', verifies=False, data=request('private.test', '/private'))[:12])`
  const byName = await Inside.make(server, world, { egress: { allow: ['private.test'] } })
  const byAddress = await Inside.make(server, world, { egress: { allow: [world.private] } })
  const direct = `print(status(tcp('${world.private}', 80, request('${world.private}'))))`
  assert.equal(await byName.python(tries), '200\n200\nHTTP/1.1 200')
  assert.equal(await byName.python(direct), '403')
  assert.equal(await byAddress.python(direct), '200')
  const mark = await world.mark()
  for (const body of [{ egress: { allow: ['*'] } }, { egress: { deny: ['evil.test'] } }, {}]) {
    await (await Inside.make(server, world, body)).python(tries)
  }
  assert.deepEqual(await world.requestsSince(mark), [])
})

test('sandboxes that wait: one that is taken is held from the start, with its secrets and its authority', async () => {
  await using server = await AtollServer.start({ env: { ...world.env, ATOLL_WARM_POOL: '1' } })
  await eventually(async () => {
    const metrics = await (await fetch(`${server.url}/metrics`)).text()
    assert.match(metrics, /^atoll_warm_sandboxes\{from="base"\} 1$/m)
  })
  const mark = await world.mark()
  const inside = await Inside.make(server, world, {
    egress: { allow: ['api.test'] },
    secrets: { TOKEN: { value, allowedHosts: ['api.test'] } },
  })
  await inside.run(`curl -sS -m 2 http://${world.evil}/`)
  await inside.sh(`curl -sS --fail -o /dev/null -H "X-Key: $TOKEN" https://api.test/warm`)
  const [request, ...others] = await world.requestsSince(mark)
  assert.ok(request && pairs(request)['x-key'] === value && others.length === 0)
})

test('the key of secrets is renewed while they are in use, and survives a restart', async () => {
  await using server = await AtollServer.start({ env: { ...world.env, ATOLL_OPERATOR_KEY: operatorKey } })
  const inside = await Inside.make(server, world, { secrets: { TOKEN: { value, allowedHosts: ['api.test'] } } })
  const works = async () => {
    const mark = await world.mark()
    await inside.sh(`curl -sS --fail -o /dev/null -H "X-Key: $TOKEN" https://api.test/rotated`)
    const [request] = await world.requestsSince(mark)
    assert.ok(request && pairs(request)['x-key'] === value)
  }
  await works()
  const headers = { 'X-API-Key': operatorKey }
  const answer = await server.fetch('/api/operator/secrets/rotate', { method: 'POST', headers })
  const { resealed, unreadable } = (await answer.json()) as { resealed: number; unreadable: number }
  assert.ok(resealed > 0)
  assert.equal(unreadable, 0)
  await works()
  await server.stop()
  await server.restart()
  await works()
})
