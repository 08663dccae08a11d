import { once } from 'node:events'
import { createServer } from 'node:net'
import type { Guest } from '../../sandbox/guest.ts'
import { run } from '../command.ts'
import { gatewayName } from '../network/index.ts'
import type { CheckResult } from './check.ts'
import { firewallAdvice } from './firewall.ts'

/**
 * They stand for the internet: of the host, and of a network namespace behind it. They must be none that sandboxes are kept
 * from, so they are public ones, which this host reaches there, and not where they belong, for as long as the attempt lasts.
 */
const outside = { host: '11.255.255.253', address: '11.255.255.254' }
const closedPort = 9
const waitMs = 20_000

/**
 * Asks the name server, connects to the gateway and to a host outside, and prints what did not work. A refused connection
 * has arrived; a firewall drops it, or answers that the host cannot be reached.
 */
const program = `
import socket, struct, sys
dns, gateway, outside = [sys.argv[1], 53], [sys.argv[1], int(sys.argv[2])], [sys.argv[3], ${closedPort}]
def arrives(address):
    try:
        socket.create_connection(address, 3).close()
    except ConnectionRefusedError:
        pass
def resolve():
    name = b''.join(bytes([len(part)]) + part.encode() for part in '${gatewayName}'.split('.')) + b'\\0'
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(3)
        client.sendto(struct.pack('>6H', 7, 256, 1, 0, 0, 0) + name + struct.pack('>2H', 1, 1), tuple(dns))
        client.recv(512)
for what, work in [('dns', resolve), ('gateway', lambda: arrives(tuple(gateway))), ('outside', lambda: arrives(tuple(outside)))]:
    try:
        work()
    except OSError:
        print(what)
`

const losses = {
  dns: 'names are not resolved',
  gateway: 'the model gateway is not reached',
  outside: 'the internet is not reached',
} as const

/** What a sandbox reaches of all that it should: a firewall of the machine may stand in between. */
export async function tryNetwork(
  hash: string,
  { listenHost, listenPort }: { listenHost: string; listenPort: number },
  guest: Guest,
): Promise<CheckResult> {
  const name = `atd${hash}`
  const gateway = createServer((connection) => connection.destroy())
  gateway.listen(listenPort, listenHost)
  await once(gateway, 'listening')
  try {
    await makeOutside(name)
    const argv = ['/usr/bin/python3', '-c', program, listenHost, String(listenPort), outside.address]
    await guest.spawn({ id: 'network', argv, envs: {} })
    const { running, exitCode } = await guest.process('network', waitMs)
    const { stdout, stderr } = await guest.output('network')
    if (running || exitCode !== 0)
      return { state: 'fails', found: `no attempt was possible: ${stderr.toString().slice(-200)}` }
    const lost = stdout.toString().trim().split('\n')
    const reported = Object.entries(losses).flatMap(([what, words]) => (lost.includes(what) ? [words] : []))
    if (reported.length === 0)
      return { state: 'works', found: 'a sandbox reaches DNS, the model gateway and the outside' }
    return { state: 'fails', found: reported.join('; '), advice: await firewallAdvice() }
  } finally {
    await removeOutside(name)
    await new Promise((resolve) => gateway.close(resolve))
  }
}

/** A network namespace and the link to it, both of this name. */
async function makeOutside(name: string): Promise<void> {
  await removeOutside(name)
  await run(['ip', 'netns', 'add', name])
  await run(['ip', '-batch', '-'], {
    input: [
      `link add ${name} type veth peer name eth0 netns ${name}`,
      `address add ${outside.host}/30 dev ${name}`,
      `link set ${name} up`,
    ].join('\n'),
  })
  await run(['ip', '-netns', name, '-batch', '-'], {
    input: `address add ${outside.address}/30 dev eth0\nlink set eth0 up\nlink set lo up`,
  })
}

/** Also what an attempt that was killed has left. */
async function removeOutside(name: string): Promise<void> {
  await run(['ip', 'link', 'delete', name]).catch(() => undefined)
  await run(['ip', 'netns', 'delete', name]).catch(() => undefined)
}
