import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { test } from 'node:test'
import { egressDnsPort, egressPort, explicitProxy, gatewayPort, metadataPort } from '../../src/runtime/network/index.ts'
import { connectionBounds, metadataAddress } from '../../src/runtime/network/rules.ts'
import { attempt, attempts, outsideServer, startStandIn } from './egress-stand-in.ts'
import { type Namespace, NetworkWorld, run, type Talk } from './network-world.ts'

const port = 8_077
/** Of services of the host, while nothing else has them. */
const dnsPort = 53

/** An outside that answers at two ports, and the services of the host. */
async function opened(tableMax?: number) {
  const world = await NetworkWorld.openWithOutside(tableMax)
  const outside = await world.outside.start(outsideServer(world.outside.address, [port, dnsPort]))
  const services = await Promise.all([gatewayPort, metadataPort].map((at) => listen(at, world.subnet.gatewayAddress)))
  const standIn = await startStandIn(world)
  return {
    world,
    outside,
    standIn,
    come: async () => Number(await outside.ask('how many')),
    [Symbol.asyncDispose]: async () => {
      await standIn.end()
      for (const service of services) await new Promise((resolve) => service.close(resolve))
      await world[Symbol.asyncDispose]()
    },
  }
}

async function listen(at: number, address: string) {
  const server = createServer((connection) => {
    connection
      .on('error', () => {})
      .resume()
      .end(`service ${at}\n`)
  })
  server.listen(at, address)
  await once(server, 'listening')
  return server
}

async function all(from: Namespace, expected: Record<string, string>): Promise<void> {
  const calls = Object.keys(expected)
  const program = `${attempts}\nfor said in (${calls.join(', ')},): print(said)`
  const said = (await from.python(program)).split('\n')
  assert.deepEqual(Object.fromEntries(calls.map((call, index) => [call, said[index]])), expected)
}

test('egress: an open sandbox has nothing to do with the process', async () => {
  await using it = await opened()
  const { world } = it
  const { address } = world.outside
  const { gatewayAddress } = world.subnet
  const open = await world.sandbox(1, 'open')
  await all(open, {
    [`tcp("${address}", ${port})`]: 'outside',
    [`udp("${address}", ${port})`]: 'outside',
    [`icmp("${address}")`]: 'answer',
    [`udp("${address}", 53)`]: 'outside',
    [`tcp("${explicitProxy.address}", ${explicitProxy.port})`]: 'silence',
    [`tcp("${gatewayAddress}", ${egressPort})`]: 'silence',
    [`udp("${gatewayAddress}", ${egressDnsPort})`]: 'silence',
    [`tcp("10.20.30.40", 80)`]: 'silence',
    [`tcp("${metadataAddress}", 80)`]: `service ${metadataPort}`,
    [`tcp("${gatewayAddress}", ${gatewayPort})`]: `service ${gatewayPort}`,
  })
})

test('egress: all TCP of a proxied sandbox comes to the process with its destination, and its questions for names, while UDP and ICMP go out', async () => {
  await using it = await opened()
  const { world } = it
  const { address, host } = world.outside
  const { gatewayAddress } = world.subnet
  const proxied = await world.sandbox(1, 'proxied')
  await world.sandbox(2)
  const own = world.subnet.address(1)
  const taken = (destination: string) => `taken ${own} to ${destination}`
  const tcp: [string, number][] = [
    [address, port],
    [host, 22],
    ['10.20.30.40', 80],
    ['192.168.1.1', 443],
    [metadataAddress, 443],
    [world.subnet.address(2), 22],
    [gatewayAddress, 22],
    [gatewayAddress, metadataPort],
    [explicitProxy.address, explicitProxy.port],
  ]
  await all(proxied, Object.fromEntries(tcp.map(([to, at]) => [`tcp("${to}", ${at})`, taken(`${to}:${at}`)])))
  await all(proxied, {
    [`udp("${gatewayAddress}", 53)`]: 'name',
    [`tcp("${gatewayAddress}", 53)`]: 'name',
    [`udp("${address}", 53)`]: 'name',
    [`tcp("${address}", 53)`]: 'name',
    [`udp("10.20.30.40", 53)`]: 'name',
    [`tcp("${metadataAddress}", 80)`]: `service ${metadataPort}`,
    [`tcp("${gatewayAddress}", ${gatewayPort})`]: `service ${gatewayPort}`,
    [`tcp("${gatewayAddress}", ${egressPort})`]: 'refused',
    [`udp("${gatewayAddress}", ${egressDnsPort})`]: 'silence',
  })
  assert.equal(await it.come(), 0)
  await all(proxied, { [`udp("${address}", ${port})`]: 'outside', [`icmp("${address}")`]: 'answer' })
})

test('egress: nothing of a confined sandbox goes out, and it is told so at once', async () => {
  await using it = await opened()
  const { world } = it
  const { address } = world.outside
  const { gatewayAddress } = world.subnet
  const confined = await world.sandbox(1, 'confined')
  const own = world.subnet.address(1)
  await all(confined, {
    [`tcp("${address}", ${port})`]: `taken ${own} to ${address}:${port}`,
    [`tcp("${address}", 53)`]: `taken ${own} to ${address}:53`,
    [`udp("${address}", ${port})`]: 'prohibited',
    [`udp("${address}", 53)`]: 'prohibited',
    [`udp("${address}", 443)`]: 'prohibited',
    [`icmp("${address}")`]: 'prohibited',
    [`udp("${gatewayAddress}", 53)`]: 'name',
    [`tcp("${gatewayAddress}", 53)`]: 'name',
    [`tcp("${metadataAddress}", 80)`]: `service ${metadataPort}`,
    [`tcp("${gatewayAddress}", ${gatewayPort})`]: `service ${gatewayPort}`,
  })
  assert.equal(await it.come(), 0)
})

test('egress: protocols without ports, and IPv6, do not leave a confined sandbox', async () => {
  await using it = await opened()
  const confined = await it.world.sandbox(1, 'confined')
  const said = await confined.python(`
${attempts}
def raw(number):
    def work():
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, number) as s:
            s.connect(("${it.world.outside.address}", 0))
            s.settimeout(waits)
            s.setsockopt(socket.SOL_IP, 11, 1)  # IP_RECVERR
            s.send(b"x" * 32)
            s.recv(64)
    return said(work)
def six():
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as s:
        s.settimeout(1)
        s.connect(("2001:db8::1", 80))
        return "connected"
print([raw(47), raw(132), raw(50)], said(six) != "connected")`)
  assert.equal(said, "['prohibited', 'prohibited', 'prohibited'] True")
})

/** A program that keeps sockets of before, and says for each line of its input what comes back over them. */
function keeping(address: string, gatewayAddress: string): string {
  return `${attempts}
socket.setdefaulttimeout(waits)
def over(kind, address, port):
    s = socket.socket(socket.AF_INET, kind)
    s.connect((address, port))
    return s
kept = {
    "tcp": over(socket.SOCK_STREAM, "${address}", ${port}),
    "udp": over(socket.SOCK_DGRAM, "${address}", ${port}),
    "dns": over(socket.SOCK_DGRAM, "${gatewayAddress}", 53),
    "dns tcp": over(socket.SOCK_STREAM, "${gatewayAddress}", 53),
    "other dns": over(socket.SOCK_DGRAM, "${address}", 53),
}
question = bytes.fromhex("000701000001000000000000") + b"\\x07gateway\\x05atoll\\x08internal\\0" + bytes.fromhex("00010001")
def ask(name):
    s = kept[name]
    def work():
        if name == "dns": s.send(question)
        elif name == "dns tcp": s.send(len(question).to_bytes(2) + question)
        else: s.send(b"x\\n")
        return "answer" if s.recv(512) else "ended"
    return said(work)
print("keeps")
for line in sys.stdin: print(ask(line.strip()))`
}

async function over(talk: Talk, names: readonly string[]): Promise<Record<string, string>> {
  const said: Record<string, string> = {}
  for (const name of names) said[name] = await talk.ask(name)
  return said
}

const kept = ['tcp', 'udp', 'dns', 'dns tcp', 'other dns']

test('egress: rules that come to a running sandbox end the connections that it has made directly, those of both ends', async () => {
  await using it = await opened()
  const { world } = it
  const { address } = world.outside
  const sandbox = await world.sandbox(1)
  const talk = await sandbox.start(keeping(address, world.subnet.gatewayAddress))
  const answers = Object.fromEntries(kept.map((name) => [name, 'answer']))
  assert.deepEqual(await over(talk, kept), answers)

  await world.network.setEgress(1, 'proxied')
  const [refused, cut] = ['prohibited', 'reset']
  assert.deepEqual(await over(talk, kept), {
    tcp: cut,
    udp: 'answer',
    dns: refused,
    'dns tcp': cut,
    'other dns': refused,
  })
  await world.network.setEgress(1, 'confined')
  assert.deepEqual(await over(talk, ['udp']), { udp: 'prohibited' })
  await all(sandbox, { [`tcp("${address}", ${port})`]: `taken ${world.subnet.address(1)} to ${address}:${port}` })

  await world.network.setEgress(1, 'open')
  await all(sandbox, {
    [`tcp("${address}", ${port})`]: 'outside',
    [`udp("${address}", ${port})`]: 'outside',
    [`icmp("${address}")`]: 'answer',
  })
  await talk.end()
})

test('egress: what the outside sends over a connection of before is refused too', async () => {
  await using it = await opened()
  const { world } = it
  const speaks = await world.outside.start(`
import socket, sys
server = socket.create_server(("${world.outside.address}", 8076))
print("serves")
c, _ = server.accept()
c.settimeout(5)
for _ in sys.stdin:
    try:
        c.sendall(b"x\\n")
        print("answer" if c.recv(64) else "ended")
    except TimeoutError: print("silence")
    except ConnectionResetError: print("reset")`)
  const sandbox = await world.sandbox(1)
  const talk = await sandbox.start(`
import socket, sys, threading
c = socket.create_connection(("${world.outside.address}", 8076))
got = []
def echo():
    try:
        while data := c.recv(64):
            got.append(data)
            c.sendall(data)
    except OSError: pass
threading.Thread(target=echo, daemon=True).start()
print("connected")
for _ in sys.stdin: print(len(got))`)
  assert.equal(await speaks.ask('once'), 'answer')
  await world.network.setEgress(1, 'proxied')
  assert.equal(await speaks.ask('more'), 'reset')
  assert.equal(await talk.ask('how many'), '1')
  await talk.end()
})

test('egress: without the process connections are refused at once, and none goes out', async () => {
  await using it = await opened()
  const { world, standIn } = it
  const { address } = world.outside
  const { gatewayAddress } = world.subnet
  const [proxied, confined] = [await world.sandbox(1, 'proxied'), await world.sandbox(2, 'confined')]
  const talk = await confined.start(`
import socket, sys
c = socket.create_connection(("${address}", ${port}))
lines = c.makefile()
print(lines.readline().strip())
for line in sys.stdin:
    c.sendall(line.encode())
    print(lines.readline().strip() or "ended")`)
  assert.equal(await talk.ask('still there'), 'still there')
  await standIn.end()
  await all(proxied, {
    [`tcp("${address}", ${port})`]: 'refused',
    [`tcp("${explicitProxy.address}", ${explicitProxy.port})`]: 'refused',
    [`udp("${gatewayAddress}", 53)`]: 'refused',
    [`udp("${address}", 53)`]: 'refused',
    [`tcp("${gatewayAddress}", 53)`]: 'refused',
    [`tcp("${metadataAddress}", 80)`]: `service ${metadataPort}`,
  })
  await all(confined, { [`tcp("${address}", ${port})`]: 'refused', [`udp("${address}", ${port})`]: 'prohibited' })
  assert.equal(await talk.ask('is it?'), 'ended')
  assert.equal(await it.come(), 0)
  await talk.end()
})

test('egress: rules that are loaded again hold for the same sandboxes, also those that changed while there were none', async () => {
  await using it = await opened()
  const { world } = it
  const call = `tcp("${world.outside.address}", ${port})`
  const [one, two, three] = [
    await world.sandbox(1, 'confined'),
    await world.sandbox(2),
    await world.sandbox(3, 'proxied'),
  ]
  const table = `atoll_${world.hash}`
  const taken = (slot: number) => `taken ${world.subnet.address(slot)} to ${world.outside.address}:${port}`
  await run('nft', ['delete', 'table', 'inet', table])
  await world.network.tendRules()
  assert.equal(await attempt(one, call), taken(1))
  assert.equal(await attempt(two, call), 'outside')
  await run('nft', ['delete', 'table', 'inet', table])
  await world.network.setEgress(2, 'confined')
  await world.network.setEgress(3, 'open')
  assert.deepEqual(
    [1, 2, 3].map((slot) => world.network.egress(slot)),
    ['confined', 'confined', 'open'],
  )
  assert.equal(await attempt(one, call), taken(1))
  assert.equal(await attempt(two, call), taken(2))
  assert.equal(await attempt(three, call), 'outside')
  await world.setTableMax(400_000)
  await world.network.tendRules()
  assert.equal(await attempt(two, call), taken(2))
})

test('egress: a server that takes over leaves no moment without the rules of sandboxes that run', async () => {
  await using it = await opened()
  const { world } = it
  const sandbox = await world.sandbox(1, 'confined')
  const talk = await sandbox.start(`${attempts}
import threading
tried, stopping = 0, False
def trying():
    global tried
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        while not stopping:
            try: s.sendto(b"x", ("${world.outside.address}", ${port}))
            except OSError: pass
            tried += 1
            if tried % 16 == 0: tcp("${world.outside.address}", ${port})
work = threading.Thread(target=trying)
work.start()
print("tries")
for line in sys.stdin:
    stopping = line.strip() == "stop"
    if stopping: work.join()
    print(tried)`)
  const egress = new Map([[1, 'confined'] as const])
  for (let times = 0; times < 10; times += 1) await world.open([1], egress)
  assert.ok(Number(await talk.ask('stop')) > 100)
  assert.equal(await it.come(), 0)
  await world.open([1], new Map([[1, 'open'] as const]))
  assert.equal(await attempt(sandbox, `tcp("${world.outside.address}", ${port})`), 'outside')
  await talk.end()
})

test('egress: the next sandbox of an address has its own state alone', async () => {
  await using it = await opened()
  const { world } = it
  const call = `tcp("${world.outside.address}", ${port})`
  const taken = `taken ${world.subnet.address(1)} to ${world.outside.address}:${port}`
  const first = await world.sandbox(1, 'confined')
  world.network.release(1)
  const second = await world.sandbox(1)
  assert.equal(await attempt(second, call), 'outside')
  await world.network.detach(1)
  const third = await world.sandbox(1, 'proxied')
  assert.equal(await attempt(third, call), taken)
  await world.network.attach(1, third.process)
  assert.equal(await attempt(third, call), taken, 'a repeat changes nothing')
  await world.network.detach(1)
  assert.equal(world.network.egress(1), 'open')
  await first.end()
})

test('egress: a sandbox cannot open more connections to the process than it can to the outside, nor more questions', async () => {
  const smallTable = 6_400
  await using it = await opened(smallTable)
  const { world } = it
  const bounds = connectionBounds(smallTable)
  const greedy = await world.sandbox(1, 'confined')
  const held = Number(
    await greedy.python(`
import socket
held = []
try:
    while len(held) < 500: held.append(socket.create_connection(("${world.outside.address}", ${port}), 0.5))
except OSError: pass
print(len(held))`),
  )
  assert.ok(held >= bounds.perSandbox - 1 && held <= bounds.perSandbox, `${held} connections`)
  const asked = Number(
    await greedy.python(`
import socket
held = []
try:
    while len(held) < 50: held.append(socket.create_connection(("${world.subnet.gatewayAddress}", 53), 0.5))
except OSError: pass
print(len(held))`),
  )
  assert.ok(asked <= 2, `${asked} connections for questions`)
})

test('egress: the limit of the network holds for what goes over the process, each way', async () => {
  await using it = await opened()
  const { world } = it
  const sandbox = await world.sandbox(1, 'confined')
  const bytesPerSecond = 2 * 1024 * 1024
  const program = `
import socket, threading, time
total = 4 * ${bytesPerSecond}
with socket.create_connection(("${world.outside.address}", ${port}), 10) as c:
    c.makefile().readline()
    began, got = time.monotonic(), 0
    threading.Thread(target=c.sendall, args=(b"x" * total,), daemon=True).start()
    while got < total: got += len(c.recv(65536))
    print(time.monotonic() - began)`
  const free = Number(await sandbox.python(program))
  await world.network.limit(new Map([[1, { group: 'one', bytesPerSecond }]]))
  const limited = Number(await sandbox.python(program))
  assert.ok(limited > 2.5, `${free} s without a limit, ${limited} s with one`)
})
