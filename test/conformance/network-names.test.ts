import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { randomBytes, randomInt } from 'node:crypto'
import { Resolver } from 'node:dns/promises'
import { once } from 'node:events'
import { access, chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { hostTool } from '../../src/runtime/host/testing/host-tool.ts'
import { Forwarder } from '../../src/runtime/network/dns.ts'
import { DnsServer } from '../support/dns-server.ts'

const run = promisify(execFile)
const link = `atn${randomBytes(4).toString('hex')}`
const address = `10.252.${randomInt(0, 255)}.1`
const upstream = { host: `127.77.${randomInt(0, 255)}.${randomInt(1, 255)}`, port: 53 }
const ownName = 'gateway.atoll.internal'
const cleanup = new AsyncDisposableStack()
let server: DnsServer
let forwarder: Forwarder
let folder: string
const resolver = new Resolver({ timeout: 60_000, tries: 1 })

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'atoll-names-'))
  // The forwarder reads as nobody.
  await chmod(folder, 0o755)
  cleanup.defer(() => rm(folder, { recursive: true }))
  await run('ip', ['link', 'add', link, 'type', 'bridge'])
  cleanup.defer(async () => void (await run('ip', ['link', 'delete', link])))
  await run('ip', ['address', 'add', `${address}/32`, 'dev', link])
  await run('ip', ['link', 'set', link, 'up'])
  server = cleanup.use(await DnsServer.start(upstream))
  const resolvFile = join(folder, 'resolv.conf')
  await writeFile(resolvFile, `nameserver ${upstream.host}\n`)
  forwarder = new Forwarder({
    run: hostTool.run,
    pidFile: join(folder, 'dnsmasq.pid'),
    address,
    subnet: '11.9.0.0/20',
    ownNames: [ownName],
    resolvFile,
  })
  await forwarder.ensure()
  cleanup.defer(() => forwarder.stop())
  resolver.setServers([address])
})

after(() => cleanup.disposeAsync())

test('DNS: names in networks that no sandbox reaches are not even asked for', async () => {
  const internal = [
    ...'10.1.2.3 100.64.0.1 100.127.255.254 127.3.3.3 169.254.169.254 172.16.0.1 172.31.255.254'.split(' '),
    ...'192.168.7.7 198.19.0.1 203.0.113.9 11.9.5.5 ::2 ::ffff:10.1.2.3 fd00::1 fc12:3456::1'.split(' '),
    ...'fe80::1 febf::1 fec0::1 2001:db8::1 64:ff9b:1::1 100::1'.split(' '),
  ]
  for (const name of internal) await assert.rejects(resolver.reverse(name), { code: 'ENOTFOUND' }, name)
  assert.deepEqual(server.asked, [])
  for (const name of ['100.63.255.254', '100.128.0.1', '172.15.0.1', '172.32.0.1', '11.9.16.1', '2606:4700::1111']) {
    await assert.rejects(resolver.reverse(name), { code: 'ENOTFOUND' }, name)
    assert.match(server.asked.splice(0).join(), /arpa$/, name)
  }
})

test('DNS: a name with an address in such a network does not resolve, and others do', async () => {
  const internal = ['10.1.2.3', '100.100.0.1', '169.254.169.254', '172.20.0.1', '192.168.7.7', '11.9.5.5']
  for (const [index, target] of internal.entries()) server.addresses.set(`intern${index}.example`, ['8.8.8.8', target])
  server.addresses.set('public.example', ['11.8.8.8'])
  server.addresses.set('own.example', ['127.0.0.1'])
  for (const index of internal.keys())
    await assert.rejects(resolver.resolve4(`intern${index}.example`), internal[index])
  assert.deepEqual(await resolver.resolve4('public.example'), ['11.8.8.8'])
  assert.deepEqual(await resolver.resolve4('own.example'), ['127.0.0.1'])
  assert.deepEqual(await resolver.resolve4(ownName), [address])
})

test('DNS: a forwarder that ends because a link of the machine went meanwhile is started again', async (t) => {
  await forwarder.stop()
  const fails = join(folder, 'fails')
  const program = `#!/bin/sh
if rm ${fails}; then echo 'dnsmasq: failed to find list of interfaces: No such device' >&2; exit 5; fi
PATH="\${PATH#*:}" exec dnsmasq "$@"
`
  await writeFile(join(folder, 'dnsmasq'), program, { mode: 0o755 })
  await writeFile(fails, '')
  const path = process.env['PATH']
  process.env['PATH'] = `${folder}:${path}`
  t.after(() => (process.env['PATH'] = path))
  await forwarder.ensure()
  await assert.rejects(access(fails), { code: 'ENOENT' })
  server.addresses.set('again.example', ['11.8.8.9'])
  assert.deepEqual(await resolver.resolve4('again.example'), ['11.8.8.9'])
})

test('DNS: a forwarder that was killed leaves its connections behind, and the next one has its address all the same', async (t) => {
  const connection = connect(53, address)
  t.after(() => connection.destroy())
  await once(connection, 'connect')
  // For the address of again.example, behind its length.
  const question = Buffer.from('001f00010100000100000000000005616761696e076578616d706c650000010001', 'hex')
  connection.write(question)
  await once(connection, 'data')
  const pid = Number(await readFile(join(folder, 'dnsmasq.pid'), 'utf8'))
  process.kill(pid, 'SIGKILL')
  while (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')) await sleep(5)
  await forwarder.ensure()
  assert.deepEqual(await resolver.resolve4('again.example'), ['11.8.8.9'])
})

test('DNS: connections that say nothing leave others to be answered', async (t) => {
  const held = Array.from({ length: 100 }, () => connect(53, address))
  t.after(() => held.forEach((socket) => socket.destroy()))
  await Promise.all(held.map((socket) => once(socket, 'connect')))
  const connection = connect(53, address)
  t.after(() => connection.destroy())
  connection.write(Buffer.from('001f00010100000100000000000005616761696e076578616d706c650000010001', 'hex'))
  const [answer] = (await once(connection, 'data')) as [Buffer]
  assert.ok(answer.includes(Buffer.from([11, 8, 8, 9])))
})
