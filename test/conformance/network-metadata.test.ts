import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type Server } from 'node:net'
import { test } from 'node:test'
import { metadataPort } from '../../src/runtime/network/index.ts'
import { metadataAddress } from '../../src/runtime/network/rules.ts'
import { connects, NetworkWorld, run } from './network-world.ts'

interface Service extends AsyncDisposable {
  /** Addresses of those that have connected. */
  peers: string[]
}

/** Keeps its connections open. */
async function serve(world: NetworkWorld): Promise<Service> {
  const peers: string[] = []
  const server: Server = createServer((peer) => {
    peers.push(peer.remoteAddress ?? '')
    peer.on('error', () => {}).on('end', () => peer.end())
    peer.resume()
  })
  server.listen(metadataPort, world.subnet.gatewayAddress)
  await once(server, 'listening')
  return { peers, [Symbol.asyncDispose]: () => new Promise((resolve) => server.close(() => resolve())) }
}

test('metadata: sandboxes reach it at its own address and port alone, each under its own address', async () => {
  await using world = await NetworkWorld.make()
  await world.open()
  await using service = await serve(world)
  const [one, two] = [await world.sandbox(1), await world.sandbox(2)]
  for (const sandbox of [one, two]) assert.equal(await connects(sandbox, metadataAddress, 80), true)
  assert.deepEqual(service.peers, [world.subnet.address(1), world.subnet.address(2)])
  const { gatewayAddress } = world.subnet
  for (const [address, port] of [
    [metadataAddress, 81],
    [metadataAddress, 443],
    [metadataAddress, metadataPort],
    ['169.254.169.253', 80],
    ['169.254.169.253', 3128],
    [gatewayAddress, metadataPort],
    [gatewayAddress, 80],
  ] as const) {
    assert.equal(await connects(one, address, port), false, `${address}:${port}`)
  }
  assert.equal(service.peers.length, 2)
})

test('metadata: a sandbox that takes the address of another gets no answer', async () => {
  await using world = await NetworkWorld.make()
  await world.open()
  await using service = await serve(world)
  const one = await world.sandbox(1)
  await world.sandbox(2)
  const stolen = world.subnet.address(2)
  await one.run('ip', 'address', 'add', `${stolen}/32`, 'dev', 'eth0')
  assert.equal(await connects(one, metadataAddress, 80, stolen), false)
  assert.deepEqual(service.peers, [])
})

test('metadata: nobody else reaches it through this host, and the host does not take the address', async () => {
  await using world = await NetworkWorld.openWithOutside()
  await using service = await serve(world)
  const { outside } = world
  for (const [address, port] of [
    [metadataAddress, 80],
    [world.subnet.gatewayAddress, metadataPort],
  ] as const) {
    await outside.run('ip', 'route', 'replace', address, 'via', outside.host)
    assert.equal(await connects(outside, address, port), false, address)
  }
  assert.deepEqual(service.peers, [])
  assert.equal(
    (await run('ip', ['address', 'show', 'to', `${metadataAddress}/32`])).stdout,
    '',
    'a cloud has its own there',
  )
  const sandbox = await world.sandbox(1)
  assert.equal(await connects(sandbox, metadataAddress, 80), true)
  assert.deepEqual(service.peers, [world.subnet.address(1)])
})

test('metadata: the connections of one sandbox are bounded, those at once and those in a second', async () => {
  await using world = await NetworkWorld.make()
  await world.open()
  await using service = await serve(world)
  const [greedy, other] = [await world.sandbox(1), await world.sandbox(2)]
  const [held, made, seconds] = (
    await greedy.python(`
import socket, time
began = time.monotonic()
held = []
try:
    while len(held) < 200: held.append(socket.create_connection(("${metadataAddress}", 80), 1))
except OSError: pass
print(len(held))
for one in held: one.close()
made = 0
try:
    while made < 200:
        socket.create_connection(("${metadataAddress}", 80), 0.05).close()
        made += 1
except OSError: pass
print(made)
print(time.monotonic() - began)`)
  )
    .split('\n')
    .map(Number)
  assert.ok(held !== undefined && held >= 60 && held <= 64, `${held} at once`)
  // Ten come back in each second.
  assert.ok(made !== undefined && made <= 10 * Math.ceil(seconds ?? 0) + 5, `${made} more in ${seconds} s`)
  assert.equal(await connects(other, metadataAddress, 80), true)
  assert.equal(service.peers.at(-1), world.subnet.address(2))
})
