/** Tries what a sandbox reaches: its name server, the model gateway, the metadata service, the outside. */
import { lookup } from 'node:dns/promises'
import { once } from 'node:events'
// oxlint-disable-next-line no-restricted-imports -- dials the internet, no guest
import { BlockList, connect, createServer } from 'node:net'
import { withTimeout } from '../../lib/async/timeout.ts'
import type { RuntimeDriver } from '../../sandbox/ports/runtime-driver.ts'
import type { Guest } from '../../sandbox/ports/guest.ts'
import { run } from '../command.ts'
import { gatewayName } from './index.ts'
import { deniedNetworks, metadataAddress } from './rules.ts'
import { fails, works, type CheckResult } from '../self-test.ts'
import { firewallAdvice, firewallsWithRulesFor } from './host-firewall/advice.ts'

/**
 * A stand-in for the internet: an address of the host, and one of a network namespace behind it. The addresses are public, since
 * sandboxes are denied private networks. During the trial this host routes them to the namespace.
 */
const outside = { host: '11.255.255.253', address: '11.255.255.254' }
const closedPort = 9
const waitMs = 30_000
/** Names that resolve on any machine with internet: the source of setup's packages, and names made for examples. */
const outsideNames = ['example.com', 'debian.org', 'iana.org'] as const
const outsidePort = 443
const lookupMs = 5_000
const dialMs = 3_000

const denied = new BlockList()
for (const network of deniedNetworks) {
  const [base = '', prefix] = network.split('/')
  denied.addSubnet(base, Number(prefix))
}

/**
 * Asks the name server for its own name and, if given, for a name outside, connects to the gateway, the metadata service and hosts
 * outside, and prints what failed. A connection that a host outside refuses has arrived: a firewall drops it, or answers `unreachable`.
 */
const program = `
import socket, struct, sys
host, port, standin, name, address = sys.argv[1:]
def arrives(address, port):
    try:
        socket.create_connection((address, int(port)), 3).close()
    except ConnectionRefusedError:
        pass
def answers(address, port):
    socket.create_connection((address, port), 3).close()
def resolve(name):
    question = b''.join(bytes([len(part)]) + part.encode() for part in name.split('.')) + b'\\0'
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(4)
        client.sendto(struct.pack('>6H', 7, 256, 1, 0, 0, 0) + question + struct.pack('>2H', 1, 1), (host, 53))
        _, flags, _, answers = struct.unpack('>4H', client.recv(512)[:8])
        if flags & 15 or not answers:
            raise OSError
work = [
    ('dns', lambda: resolve('${gatewayName}')),
    ('name', lambda: name and resolve(name)),
    ('gateway', lambda: answers(host, int(port))),
    ('metadata', lambda: answers('${metadataAddress}', 80)),
    ('standin', lambda: arrives(standin, ${closedPort})),
    ('address', lambda: address and arrives(address, ${outsidePort})),
]
for what, attempt in work:
    try:
        attempt()
    except OSError:
        print(what)
`

type Loss = 'dns' | 'name' | 'gateway' | 'metadata' | 'standin' | 'address'

/** Finds what a sandbox cannot reach because a firewall of the machine drops its packets. */
export async function tryNetwork(
  { hash, leaveHostFirewall }: { hash: string; leaveHostFirewall: boolean },
  driver: Pick<RuntimeDriver, 'gateway' | 'metadata'>,
  guest: Guest,
): Promise<CheckResult> {
  const linkName = `atd${hash}`
  const { listenHost, listenPort } = driver.gateway()
  const metadata = driver.metadata()
  await using listeners = new AsyncDisposableStack()
  listeners.use(await listener(listenHost, listenPort))
  listeners.use(await listener(metadata.listenHost, metadata.listenPort))
  try {
    const internet = await hostInternet()
    await makeOutside(linkName)
    const { name = '', address = '' } = internet
    const argv = ['/usr/bin/python3', '-c', program, listenHost, String(listenPort), outside.address, name, address]
    await guest.spawn({ id: 'network', argv, envs: {} })
    const { running, exitCode } = await guest.process('network', waitMs)
    const { stdout, stderr } = await guest.output('network')
    if (running || exitCode !== 0) return fails(`no attempt was possible: ${stderr.toString().slice(-200)}`)
    const losses = lossesIn(new Set(stdout.toString().trim().split('\n')), internet)
    if (losses.length > 0) return fails(losses.join('; '), await advice(leaveHostFirewall))
    const chains = await firewallsWithRulesFor(hash)
    const added = chains.length === 0 ? '' : `; Atoll has added rules to ${chains.join(', ')}`
    return works(
      `a sandbox reaches DNS, the model gateway, the metadata service and the outside (${outsideWas(internet)})${added}`,
    )
  } finally {
    await removeOutside(linkName)
  }
}

/** Accepts connections and ends them. */
async function listener(host: string, port: number): Promise<AsyncDisposable> {
  const server = createServer((connection) => connection.destroy())
  server.listen(port, host)
  await once(server, 'listening')
  return { [Symbol.asyncDispose]: () => new Promise((resolve) => server.close(() => resolve())) }
}

function lossesIn(lost: ReadonlySet<string>, { name, address }: Internet): string[] {
  const has = (loss: Loss) => lost.has(loss)
  return [
    ...(has('dns') ? ['names are not resolved'] : []),
    ...(has('name') && !has('dns') ? [`${name} is not resolved, which this machine itself resolves`] : []),
    ...(has('gateway') ? ['the model gateway is not reached'] : []),
    ...(has('metadata') ? ['the metadata service is not reached'] : []),
    ...(has('standin') ? ['the internet is not reached'] : []),
    ...(has('address') && !has('standin') ? [`${address} is not reached, which this machine itself reaches`] : []),
  ]
}

async function advice(leaveHostFirewall: boolean): Promise<string> {
  const byHand = leaveHostFirewall
    ? 'ATOLL_HOST_FIREWALL is leave, without which the server adds rules by itself; by hand: '
    : ''
  return `${byHand}${await firewallAdvice()}`
}

function outsideWas({ name, address }: Internet): string {
  if (name === undefined) return `a stand-in, since this machine itself resolves none of ${outsideNames.join(', ')}`
  if (address === undefined) return `the name ${name}, and a stand-in, since this machine itself does not reach it`
  return `${name} at ${address}`
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

/** Also removes what a killed trial left. */
async function removeOutside(name: string): Promise<void> {
  await run(['ip', 'link', 'delete', name]).catch(() => undefined)
  await run(['ip', 'netns', 'delete', name]).catch(() => undefined)
}

/** What this machine itself reaches of the internet now; a sandbox must reach as much. */
interface Internet {
  /** A name that resolves to addresses open to sandboxes. */
  name?: string
  /** An address that accepts connections. */
  address?: string
}

async function hostInternet(): Promise<Internet> {
  const found = (await Promise.all(outsideNames.map(resolved))).flat()
  const reached = await Promise.all(found.map(async (host) => ((await arrives(host.address)) ? [host] : [])))
  const [first] = found
  return reached.flat()[0] ?? (first === undefined ? {} : { name: first.name })
}

/** Resolves a name. Leaves out one with a denied address: sandboxes do not get its addresses either. */
async function resolved(name: string): Promise<Required<Internet>[]> {
  const answer = await withTimeout(
    lookupMs,
    lookup(name, { family: 4, all: true }).catch(() => undefined),
  )
  const [first] = answer ?? []
  if (first === undefined || answer?.some(({ address }) => denied.check(address))) return []
  return [{ name, address: first.address }]
}

/** Whether a connection arrives, which a refused one has too. */
function arrives(host: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port: outsidePort, timeout: dialMs })
    const end = (hasArrived: boolean) => {
      socket.destroy()
      resolve(hasArrived)
    }
    socket.once('connect', () => end(true))
    socket.once('timeout', () => end(false))
    socket.once('error', (error: NodeJS.ErrnoException) => end(error.code === 'ECONNREFUSED'))
  })
}
