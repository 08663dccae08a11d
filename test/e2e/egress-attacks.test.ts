/** What is tried from inside a sandbox against its rules and at its secrets: each attempt is refused, or ends as is stated. */
import assert from 'node:assert/strict'
import { createServer } from 'node:net'
import { after, before, describe, test } from 'node:test'
import { type Attack, assertKept, assertOnlyTo } from './egress/attack.ts'
import { httpAttacks } from './egress/attacks-http.ts'
import { addressAttacks, nameAttacks, tlsAttacks } from './egress/attacks-network.ts'
import { datagramAttacks, proxyAttacks } from './egress/attacks-proxy.ts'
import { secretAttacks, tokenValue } from './egress/attacks-secrets.ts'
import { Inside } from './egress/inside.ts'
import { EgressWorld } from './egress/world.ts'
import { AtollServer } from './server.ts'
import { freePort } from '../support/listen.ts'

const attacks = [
  ...addressAttacks,
  ...tlsAttacks,
  ...nameAttacks,
  ...proxyAttacks,
  ...datagramAttacks,
  ...httpAttacks,
  ...secretAttacks,
]

const secrets = {
  TOKEN: { value: tokenValue, allowedHosts: ['api.test', 'selfsigned.test', 'misnamed.test'] },
}
/** Names that point to private addresses are listed: only their addresses keep them out. */
const pointed = ['private.test', 'alias.test', 'loopback.test', 'metadata.test', 'host.test', 'half-private.test']
const list = {
  mode: 'list',
  allow: [
    ...['api.test', 'other.test', 'two.test', '*.wild.test', 'v6.test', 'rebind.test', 'alias-out.test', ...pointed],
    { host: 'raw.test', ports: [22] },
    { host: 'read.test', ports: [80, 443], methods: ['GET', 'HEAD'], paths: ['/v1/*'] },
    { host: 'second.test', inspect: true },
  ],
  deny: ['*.no.wild.test', 'no.wild.test'],
}

const opened = new AsyncDisposableStack()
let world: EgressWorld
let server: AtollServer
const sandboxes = new Map<string, Inside>()
before(async () => {
  world = opened.use(await EgressWorld.make())
  server = opened.use(await AtollServer.start({ env: world.env }))
  sandboxes.set('listed', await Inside.make(server, world, { egress: list, secrets }))
  sandboxes.set('open', await Inside.make(server, world, { secrets }))
})
after(() => opened.disposeAsync())

function of(name: string): Inside {
  const found = sandboxes.get(name)
  assert.ok(found)
  return found
}

async function attack({ does, ends, holds, from = 'listed' }: Attack): Promise<void> {
  const mark = await world.mark()
  const output = await of(from).python(typeof does === 'string' ? does : does(world))
  const patterns = [ends].flat()
  const lines = output.split('\n')
  lines.forEach((line, index) => {
    const pattern = patterns[index] ?? patterns.at(-1)
    assert.match(line, pattern ?? /^$/, `attempt ${index + 1} of ${lines.length}:\n${output}`)
  })
  assert.ok(!output.includes(tokenValue), 'no answer has the value')
  const seen = await world.since(mark)
  if (from === 'listed') assertKept(seen, world)
  assertOnlyTo(seen, tokenValue, 'api.test')
  holds?.(seen, world)
}

describe('attacks', () => {
  assert.ok(attacks.length >= 40)
  for (const each of attacks) test(`attack: ${each.name}`, () => attack(each))
})

test('attacks: none of them has broken what is listed', async () => {
  const said = await of('listed').python(`
print(status(tls('api.test', ca=None, data=request('api.test'))), status(tls('read.test', ca=None, data=request('read.test', '/v1/a'))),
    status(tls('a.wild.test', data=request('a.wild.test'))), issuer('other.test'), issuer('api.test'))`)
  assert.equal(said, '200 200 200 world another')
})

test('rebinding: a name that becomes private is not dialled there, whatever the sandbox was told first', async () => {
  const mark = await world.mark()
  await world.setName('rebind.test', { answers: [[world.main]], ttlSeconds: 0 })
  assert.equal(await of('listed').python(`print(lookup('rebind.test'))`), world.main)
  await world.setName('rebind.test', { answers: [[world.private]], ttlSeconds: 0 })
  const program = `
for _ in range(4): print(status(tcp('rebind.test', 80, request('rebind.test', '/bound')))); dns('rebind.test')`
  const others = (await of('listed').python(program)).split('\n')
  for (const other of others) assert.match(other, /^(200|403|50\d|reset|closed|no such name)$/)
  assertKept(await world.since(mark), world)
})

test('a port of the host itself: neither its outer address nor a name of it is reached', async () => {
  const taken: string[] = []
  const listener = createServer((connection) => {
    taken.push(String(connection.remoteAddress))
    connection.destroy()
  })
  // One that no test beside this one takes for a closed port of its own.
  const port = await freePort()
  await new Promise<void>((resolve) => void listener.listen(port, '0.0.0.0', resolve))
  try {
    const program = `
for at in '${world.host}', server(), '127.0.0.1': print(tcp(at, ${port}, request('host.test'))); print(tcp(at, ${port}, hello(['host.test'])))
print(connect('${world.host}:${port}').split('\\r\\n')[0]); print(connect('host.test:${port}').split('\\r\\n')[0])
print(tls('host.test', ${port})); print(status(tcp('host.test', ${port}, request('host.test'))))`
    for (const from of ['listed', 'open']) await of(from).python(program)
    assert.deepEqual(taken, [])
  } finally {
    listener.close()
  }
})

test('where all is allowed: private addresses, the host and the metadata service stay out of reach by any way', async () => {
  const mark = await world.mark()
  const said = await of('open').python(`
for at in '${world.private}', 'private.test', 'alias.test':
    print(status(tcp(at, 80, request('private.test', '/kept')))); print(tls(at, verifies=False)); print(connect(at + ':80', data=request('private.test', '/kept')))`)
  for (const line of said.split('\n')) assert.doesNotMatch(line, /^200|HTTP\/1\.1 200 OK/, said)
  assertKept(
    (await world.since(mark)).filter((seen) => seen.kind !== 'tcp' || seen.address !== world.evil),
    world,
  )
})

test('the token of another sandbox is text', async () => {
  const another = await Inside.make(server, world, {
    secrets: { TOKEN: { value: `other-${tokenValue}`, allowedHosts: ['api.test'] } },
  })
  const foreign = await of('open').variable('TOKEN')
  const mark = await world.mark()
  const said = await another.python(
    `print(status(tls('api.test', ca=None, data=request('api.test', '/foreign', headers='X-Key: ${foreign}\\r\\n'))))`,
  )
  assert.equal(said, '200')
  const [request] = await world.requestsSince(mark)
  assert.ok(request?.rawHeaders.includes(foreign))
  assert.ok(!JSON.stringify(await world.since(mark)).includes(tokenValue))
})

test('the certificate authority of one sandbox counts for no other', async () => {
  const file = '/usr/local/share/ca-certificates/opensandbox-proxy.crt'
  const foreign = await of('open').sh(`cat ${file}`)
  assert.notEqual(foreign, await of('listed').sh(`cat ${file}`))
  await of('listed').write('/root/foreign.pem', Buffer.from(foreign))
  const program = `
print(tls('api.test', ca='/root/foreign.pem', data=request('api.test')))
print(status(tls('api.test', ca='${file}', data=request('api.test'))))`
  const [refused, taken] = (await of('listed').python(program)).split('\n')
  assert.match(refused ?? '', /^certificate: /)
  assert.equal(taken, '200')
})

test('a denied connection is told: inside, in the log with its rule and bytes, and as an event', async () => {
  const inside = of('listed')
  const program = `print(tcp('other.test', 80, request('nowhere.test', '/told?secret=query')))`
  const answer = await inside.python(program)
  assert.match(answer, /^HTTP\/1\.1 403/)
  assert.match(answer, /x-atoll-egress: denied/i)
  assert.match(answer, /"error"/)
  const entry = await inside.logs(({ host, decision }) => host === 'nowhere.test' && decision === 'denied')
  assert.deepEqual([entry.protocol, entry.port, entry.method, entry.path], ['http', 80, 'GET', '/told'])
  assert.ok(entry.sentBytes > 0 && entry.receivedBytes > 0)
  await inside.event('sandbox.egress.denied', ({ host }) => host === 'nowhere.test')
})
