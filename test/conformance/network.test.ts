import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readdir, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { test } from 'node:test'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { gatewayPort } from '../../src/runtime/network/index.ts'
import { Layout } from '../../src/runtime/network/layout.ts'
import { connects, echoClient, echoServer, ipBatch, NetworkWorld, run, type Namespace } from './network-world.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

/** A bridge of the kernel has no more. */
const bridgePortsMax = 1_023
const echoPort = 8_079

test('network: it has more links than a bridge has ports', async () => {
  await using world = await NetworkWorld.make()
  await world.open()
  const layout = new Layout(world.hash, world.subnet)
  const elsewhere = await world.namespace()
  const there = `/proc/${elsewhere.process.pid}/ns/net`
  const ports = Array.from({ length: bridgePortsMax + 1 }, (_, index) => layout.port(index + 2))
  const lines = ports.flatMap((port) => [
    ...layout.makePort(port, there).map((line) => line.replace('eth0', `x${port.link}`)),
    ...layout.joinPort(port),
  ])
  await ipBatch(lines)
  const last = await world.sandbox(ports.length + 2)
  assert.equal(await reachesGateway(world, last), true)
  assert.equal((await ownLinks(world)).length, bridgePortsMax + 3)
  // A link that goes is waited for; the namespace takes all of them at once.
  await elsewhere.end()
})

test('network: a sandbox can use only its own address, and reaches no other sandbox', async () => {
  await using world = await NetworkWorld.make()
  await world.open()
  const [one, other] = [await world.sandbox(1), await world.sandbox(2)]
  const [own, stolen] = [world.subnet.address(1), world.subnet.address(2)]
  const gateway = await listenOnGateway(world)
  assert.equal(await connects(one, world.subnet.gatewayAddress, gatewayPort, own), true)
  await one.run('ip', 'address', 'add', `${stolen}/32`, 'dev', 'eth0')
  assert.equal(await connects(one, world.subnet.gatewayAddress, gatewayPort, stolen), false)
  await one.run('ip', 'address', 'add', `${world.subnet.address(9)}/32`, 'dev', 'eth0')
  assert.equal(await connects(one, world.subnet.gatewayAddress, gatewayPort, world.subnet.address(9)), false)
  assert.equal(await connects(one, world.subnet.gatewayAddress, gatewayPort, own), true)
  await one.run('ip', 'address', 'delete', `${stolen}/32`, 'dev', 'eth0')
  const server = await other.start(echoServer('0.0.0.0', echoPort))
  assert.equal(await connects(one, stolen, echoPort), false)
  assert.equal(await connects(other, stolen, echoPort), true)
  await server.end()
  gateway.close()
})

test('network: removed rules are loaded again at the next look at the host', async () => {
  await using world = await NetworkWorld.make()
  await world.open()
  await run('nft', ['delete', 'table', 'inet', `atoll_${world.hash}`])
  await world.network.tendRules()
  const [one, other] = [await world.sandbox(1), await world.sandbox(2)]
  const server = await other.start(echoServer('0.0.0.0', echoPort))
  assert.equal(await connects(one, world.subnet.address(2), echoPort), false)
  assert.match(world.said.join('\n'), /packet rules .* loaded again/)
  await server.end()
})

test('network: ARP requests for addresses of the host get no answer, and its errors come from the gateway’s address', async () => {
  await using world = await NetworkWorld.openWithOutside()
  const sandbox = await world.sandbox(1)
  const { gatewayAddress } = world.subnet
  for (const address of [world.outside.host, gatewayAddress]) {
    await sandbox.run('ip', 'route', 'replace', address, 'dev', 'eth0', 'scope', 'link')
    await sandbox.run('ip', 'neighbour', 'flush', 'dev', 'eth0', 'nud', 'permanent')
    assert.equal(await connects(sandbox, address, 53), false)
    assert.doesNotMatch(await sandbox.run('ip', 'neighbour', 'show', address), /lladdr/)
  }
  const { link, mac } = new Layout(world.hash, world.subnet).port(1)
  assert.match((await run('ip', ['neighbour', 'show', 'dev', link])).stdout, new RegExp(`lladdr ${mac} PERMANENT`))
  await sandbox.run('ip', 'route', 'delete', world.outside.host, 'dev', 'eth0')
  await world.network.attach(1, sandbox.process)
  const offender = await sandbox.python(`
import socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(60)
s.setsockopt(socket.SOL_IP, socket.IP_TTL, 1)
s.setsockopt(socket.SOL_IP, 11, 1)  # IP_RECVERR
s.connect(("${world.outside.address}", 9))
s.send(b"x")
try: s.recv(1)
except OSError: pass
_, notes, _, _ = s.recvmsg(64, 512, socket.MSG_ERRQUEUE)
print(socket.inet_ntoa(notes[0][2][20:24]))`)
  assert.equal(offender, gatewayAddress)
})

test('network: a connection outlives silence, and its outside address is the host’s', async () => {
  await using world = await NetworkWorld.openWithOutside()
  await world.outside.start(echoServer(world.outside.address, echoPort))
  const sandbox = await world.sandbox(1)
  const talk = await sandbox.start(echoClient(world.outside.address, echoPort))
  assert.equal(await talk.ask('one'), world.outside.host)
  await world.network.silence(1, true)
  assert.equal(await connects(sandbox, world.outside.address, echoPort), false)
  await world.network.silence(1, false)
  assert.equal(await talk.ask('two'), world.outside.host)
  await talk.end()
})

test('network: a link forwards even if the host disables it for new links', async () => {
  await using world = await NetworkWorld.openWithOutside()
  await world.outside.start(echoServer(world.outside.address, echoPort))
  const sandbox = await world.sandbox(1)
  // As links are born where `net.ipv4.conf.default.forwarding` is 0.
  const file = `/proc/sys/net/ipv4/conf/${new Layout(world.hash, world.subnet).port(1).link}/forwarding`
  for (const join of [() => world.network.attach(1, sandbox.process), () => world.open([1])]) {
    await writeFile(file, '0')
    assert.equal(await connects(sandbox, world.outside.address, echoPort), false)
    await join()
    assert.equal(await connects(sandbox, world.outside.address, echoPort), true)
  }
})

test('network: the namespace of a later process with the same pid is left alone, with a reason', async () => {
  await using world = await NetworkWorld.make()
  await world.open()
  const namespace = await world.namespace()
  const { process } = namespace
  const before = await namespace.run('ip', 'address')
  const links = await ownLinks(world)
  const earlier = { ...process, startTicks: process.startTicks - 1 }
  const words = /cannot be joined to the network: .* has ended/
  await refuses(world.network.attach(1, earlier), 'unavailable', words)
  assert.equal(await namespace.run('ip', 'address'), before)
  assert.deepEqual(await ownLinks(world), links)
  await world.network.attach(1, process)
})

test('network: close leaves nothing', async () => {
  const world = await NetworkWorld.make()
  await world.open()
  await world.sandbox(1)
  await world[Symbol.asyncDispose]()
  assert.deepEqual(await ownLinks(world), [])
  assert.doesNotMatch((await run('nft', ['list', 'tables'])).stdout, new RegExp(world.hash))
  assert.doesNotMatch((await run('ip', ['route'])).stdout, new RegExp(world.hash))
})

async function ownLinks({ link }: NetworkWorld): Promise<string[]> {
  const hash = link.slice('atl'.length)
  return (await readdir('/sys/class/net')).filter((name) => name.startsWith('atl') && name.includes(hash)).toSorted()
}

async function reachesGateway(world: NetworkWorld, sandbox: Namespace): Promise<boolean> {
  const server = await listenOnGateway(world)
  try {
    // A thousand links on a busy machine answer later than one.
    return await eventually(() => connects(sandbox, world.subnet.gatewayAddress, gatewayPort))
  } finally {
    server.close()
  }
}

async function listenOnGateway(world: NetworkWorld) {
  const server = createServer((connection) => connection.destroy())
  server.listen(gatewayPort, world.subnet.gatewayAddress)
  await once(server, 'listening')
  return server
}
