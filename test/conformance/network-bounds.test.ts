import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { connectionBounds, ownConnections } from '../../src/runtime/network/rules.ts'
import { echoClient, echoServer, NetworkWorld, type Namespace, type Outside } from './network-world.ts'

const port = 8_078
/** Of a host that sandboxes would fill in no time. */
const smallTable = 6_400
const bounds = connectionBounds(smallTable)

test('connection bounds: a flood of packets to many ports fills only the share of its sandbox', async () => {
  await using world = await NetworkWorld.openWithOutside(smallTable)
  const counter = await countingServer(world.outside)
  const flooder = await world.sandbox(1)
  await flood(flooder, world.outside.address, 1_000)
  const passed = Number(await counter.ask('how many'))
  assert.ok(passed >= bounds.perSandbox - 1 && passed <= bounds.perSandbox, `${passed} passed`)
})

test('connection bounds: several floods leave other sandboxes their own connections, other groups their share, and the host its own', async () => {
  await using world = await NetworkWorld.openWithOutside(smallTable)
  const counter = await countingServer(world.outside)
  // Slots whose addresses end alike.
  const [one, two, three, victim, stranger] = await Promise.all([1, 17, 33, 49, 2].map((slot) => world.sandbox(slot)))
  assert.ok(one && two && three && victim && stranger)
  for (const flooder of [one, two, three]) await flood(flooder, world.outside.address, 1_000)
  const passed = Number(await counter.ask('how many'))
  assert.ok(passed >= bounds.perGroup && passed <= bounds.perGroup + 3 * ownConnections, `${passed} passed`)
  await flood(victim, world.outside.address, 10)
  assert.equal(Number(await counter.ask('how many')), passed + 10)
  // Groups share a rate, whose burst is that of one second.
  await sleep(1000)
  await flood(stranger, world.outside.address, 1_000)
  const ofStranger = Number(await counter.ask('how many')) - passed - 10
  assert.ok(ofStranger >= bounds.perSandbox - 1 && ofStranger <= bounds.perSandbox, `${ofStranger} passed`)
})

test('connection bounds: ended connections, which stay in the table uncounted, are bounded by their rate', async () => {
  await using world = await NetworkWorld.openWithOutside(smallTable)
  await world.outside.start(echoServer(world.outside.address, port))
  const sandbox = await world.sandbox(1)
  const [made, seconds] = (
    await sandbox.python(`
import socket, struct, time
# tcpi_total_retrans of linux/tcp.h. A first packet that is dropped is sent again; one that is late is not.
def resent(connection): return struct.unpack_from("=I", connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 100)[0]
began, made = time.monotonic(), 0
while made < 2000:
    seconds = time.monotonic() - began
    with socket.create_connection(("${world.outside.address}", ${port}), 60) as connection:
        if resent(connection) > 0: break
    made += 1
print(made, seconds)`)
  )
    .split(' ')
    .map(Number)
  assert.ok(made !== undefined && seconds !== undefined)
  const most = 2 * bounds.perSandbox + bounds.perSandboxPerSecond * Math.ceil(seconds)
  assert.ok(made >= bounds.perSandbox && made <= most, `${made} in ${seconds} s`)
})

test('connection bounds: they follow the size of the table', async () => {
  await using world = await NetworkWorld.openWithOutside(smallTable)
  const counter = await countingServer(world.outside)
  await world.setTableMax(2 * smallTable)
  await world.network.tendRules()
  await flood(await world.sandbox(1), world.outside.address, 1_000)
  const passed = Number(await counter.ask('how many'))
  assert.ok(passed > bounds.perSandbox && passed <= 2 * bounds.perSandbox, `${passed} passed`)
})

test('connection bounds: segments fit the smallest link on the way, in both directions', async () => {
  const mtu = 1_400
  await using world = await NetworkWorld.make()
  await world.outside.make(mtu)
  await world.open()
  await world.outside.start(echoServer(world.outside.address, port))
  const sandbox = await world.sandbox(1)
  const talk = await sandbox.start(echoClient(world.outside.address, port))
  await talk.ask('hello')
  const shown = ['ss', '--tcp', '--info', '--no-header', 'state', 'established']
  for (const side of [sandbox, world.outside]) {
    const mss = Number(/\bmss:(\d+)/.exec(await side.run(...shown))?.[1])
    // Headers of IP and TCP take 40 bytes, time stamps 12.
    assert.ok(mss > 1_300 && mss <= mtu - 40, String(mss))
  }
  await talk.end()
})

/** Sends one packet to each of so many ports. */
async function flood(from: Namespace, address: string, count: number): Promise<void> {
  await from.python(`
import socket
for number in range(${count}):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s: s.sendto(b"x", ("${address}", 20000 + number))`)
}

/** Tells how many packets have arrived that it was sent at any port. */
function countingServer(outside: Outside) {
  return outside.start(`
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
s.setsockopt(socket.SOL_SOCKET, 33, 64 * 1024 * 1024)  # SO_RCVBUFFORCE
s.setblocking(False)
arrived = 0
print("counts")
for _ in sys.stdin:
    try:
        while True:
            packet, about = s.recvfrom(2048)
            if about[2] == 0 and packet[9] == 17 and int.from_bytes(packet[22:24], "big") >= 20000: arrived += 1
    except BlockingIOError: pass
    print(arrived)`)
}
