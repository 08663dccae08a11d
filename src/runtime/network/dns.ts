import { spawn } from 'node:child_process'
import { open, readdir, readFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { ServiceError } from '../../errors.ts'
import { commandEnvironment, type Run } from '../command.ts'
import { readNow } from '../read-now.ts'
import { deniedNetworks } from './rules.ts'

const startTimeoutMs = 15_000
/** Longer than a killed child of dnsmasq takes to end. */
const endMs = 200
const pollMs = 5
/** The last message of a dnsmasq that ends because a network link of the machine disappeared while it listed them. */
const linksChanged = 'failed to find list of interfaces'
/** Each takes a process. Enough for two of each sandbox (`rules.ts`), of more sandboxes than one organisation may run by default. */
const tcpConnectionsMax = 512
/** Addresses in these reveal nothing of the host's network, and programs use names for their own loopback. */
const harmlessNetworks: readonly string[] = ['0.0.0.0/8', '127.0.0.0/8']

export interface ForwarderOptions {
  run: Run
  pidFile: string
  address: string
  /** The subnet of the sandboxes. */
  subnet: string
  /** Names that the forwarder answers itself, with its own address. */
  ownNames: readonly string[]
  /** The file that lists the name servers to ask. */
  resolvFile?: string
}

interface Ended {
  code: number | null
  said: string
}

/**
 * The DNS forwarder of all sandboxes of one data directory: a dnsmasq on the gateway's address, in a process session of its
 * own, so that it outlives this process and is adopted by the next.
 */
export class Forwarder {
  readonly #options: ForwarderOptions

  constructor(options: ForwarderOptions) {
    this.#options = options
  }

  /** Adopts a running forwarder with the same arguments, replaces another one. Throws `unavailable`. */
  async ensure(): Promise<void> {
    const running = await this.#running()
    const argv = [...this.#arguments(), ...(await tcpArguments(this.#options.run))]
    if (running?.argv.slice(1).join('\0') === argv.join('\0')) return
    await this.stop()
    await this.#start(argv)
  }

  /** Ends dnsmasq and its children, each of which serves a connection, also children that have outlived it. */
  async stop(): Promise<void> {
    const pid = await this.#recordedPid()
    if (pid === undefined) return
    const isOurs = (await this.#running()) !== undefined
    if (isOurs || (await hasChildren(pid))) await endGroup(pid)
  }

  /** Starts dnsmasq, and again when a link of the machine disappeared meanwhile ({@link linksChanged}), which is no fault of this start. */
  async #start(argv: readonly string[]): Promise<void> {
    const until = Date.now() + startTimeoutMs
    for (;;) {
      const ended = await this.#startOnce(argv, until)
      if (ended === undefined) return
      if (!ended.said.includes(linksChanged) || Date.now() > until) throw stoppedAtOnce(this.#options.address, ended)
      await sleep(pollMs)
    }
  }

  /** Returns how dnsmasq ended; undefined when it answers. */
  async #startOnce(argv: readonly string[], until: number): Promise<Ended | undefined> {
    const { address, pidFile } = this.#options
    // A file, not a pipe: dnsmasq outlives this process, and a write to a closed pipe would end it.
    const logFile = `${pidFile}.log`
    await using log = await open(logFile, 'w', 0o600)
    let missing: Error | undefined
    let ended: Promise<Ended> | undefined
    const child = spawn('dnsmasq', argv, {
      detached: true,
      stdio: ['ignore', 'ignore', log.fd],
      env: commandEnvironment(),
    })
    child.once('error', (cause) => {
      missing = new ServiceError('unavailable', 'dnsmasq is not installed (Debian package dnsmasq-base)', { cause })
    })
    child.once('exit', (code) => {
      ended = readFile(logFile, 'utf8').then(
        (said) => ({ code, said: said.trim() }),
        () => ({ code, said: '' }),
      )
    })
    child.unref()
    // dnsmasq writes its pid file when its sockets are bound.
    while ((await this.#running()) === undefined) {
      if (missing !== undefined) throw missing
      if (ended !== undefined) return await ended
      if (Date.now() > until) {
        child.kill('SIGKILL')
        throw new ServiceError('unavailable', `dnsmasq on ${address} did not start`)
      }
      await sleep(pollMs)
    }
    return undefined
  }

  /** The forwarder named by the pid file, if that process is one of ours. */
  async #running(): Promise<{ argv: string[] } | undefined> {
    const pid = await this.#recordedPid()
    if (pid === undefined) return undefined
    const argv = (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).split('\0').slice(0, -1)
    return argv.includes(`--pid-file=${this.#options.pidFile}`) ? { argv } : undefined
  }

  async #recordedPid(): Promise<number | undefined> {
    const pid = Number((await readFile(this.#options.pidFile, 'utf8').catch(() => '')).trim())
    return Number.isSafeInteger(pid) && pid > 1 ? pid : undefined
  }

  #arguments(): string[] {
    const { address, subnet, ownNames, pidFile, resolvFile = '/etc/resolv.conf' } = this.#options
    const internal = [...deniedNetworks, subnet]
    return [
      '--keep-in-foreground',
      '--conf-file=/dev/null',
      `--pid-file=${pidFile}`,
      '--bind-interfaces',
      `--listen-address=${address}`,
      '--except-interface=lo',
      '--no-hosts',
      `--resolv-file=${resolvFile}`,
      '--cache-size=1000',
      // More queries than many sandboxes have open together: `rules.ts` bounds each sandbox, and a query waits some ten seconds.
      '--dns-forward-max=20000',
      // Reveals nothing of itself or of the host's name servers.
      '--no-ident',
      // Sandboxes have no IPv6.
      '--filter-AAAA',
      // Hides the networks that no sandbox reaches: dnsmasq does not look up names of their addresses, and drops answers with them.
      `--local=/${reverseZones(internal).join('/')}/`,
      ...internal
        .filter((network) => !harmlessNetworks.includes(network))
        .map((network) => `--bogus-nxdomain=${network}`),
      ...ownNames.flatMap((name) => [`--host-record=${name},${address}`, `--local=/${name}/`]),
      '--user=nobody',
      '--group=nogroup',
    ]
  }
}

/** Options of the installed version: before 2.90 dnsmasq serves twenty connections and has no option for more. */
let tcpOptions: string[] | undefined

async function tcpArguments(run: Run): Promise<string[]> {
  if (tcpOptions !== undefined) return tcpOptions
  const help = await run(['dnsmasq', '--help']).catch(() => undefined)
  // The start reports a missing dnsmasq.
  if (help === undefined) return []
  return (tcpOptions = help.includes('--max-tcp-connections') ? [`--max-tcp-connections=${tcpConnectionsMax}`] : [])
}

function stoppedAtOnce(address: string, { code, said }: Ended): Error {
  const hint = said.includes('in use')
    ? '; another name server of this machine listens on all addresses: let it leave out this one'
    : ''
  return new ServiceError('unavailable', `dnsmasq on ${address} stopped at once with status ${code}: ${said}${hint}`)
}

/** Whether a dnsmasq is left in the process group of one that has ended: only then is the number still that of our group. */
async function hasChildren(leader: number): Promise<boolean> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const stats = pids.includes(String(leader)) ? [] : pids.map((pid) => readNow(`/proc/${pid}/stat`) ?? '')
  return stats.some((stat) => /^\d+ \(dnsmasq\) \S \d+ (\d+) /.exec(stat)?.[1] === String(leader))
}

/** Kills a process group and waits for the end of its leader, and for the others at most `endMs`: one that nobody reaps looks alive. */
async function endGroup(leader: number): Promise<void> {
  try {
    process.kill(-leader, 'SIGKILL')
    while (/\) [^ZX] /.test(await readFile(`/proc/${leader}/stat`, 'utf8').catch(() => ''))) await sleep(pollMs)
    for (const until = Date.now() + endMs; Date.now() < until; await sleep(pollMs)) process.kill(-leader, 0)
  } catch {
    // All have ended.
  }
}

/** Reverse zones of the IPv6 networks that are private or unassigned. */
const privateZones6 = [
  // ::, ::1 and IPv4-mapped addresses
  '0.0.ip6.arpa',
  // 64:ff9b:1::/48, 100::/64
  '1.0.0.0.b.9.f.f.4.6.0.0.ip6.arpa',
  '0.0.0.0.0.0.0.0.0.0.0.0.0.0.1.0.ip6.arpa',
  // 2001:db8::/32
  '8.b.d.0.1.0.0.2.ip6.arpa',
  // fc00::/7
  'c.f.ip6.arpa',
  'd.f.ip6.arpa',
  // fe80::/10, fec0::/10
  ...'89abcdef'.split('').map((digit) => `${digit}.e.f.ip6.arpa`),
  // ff00::/8
  'f.f.ip6.arpa',
]

/** The reverse zones of IPv4 networks, such as `10.in-addr.arpa`. A prefix that is no multiple of 8 has several zones. */
export function reverseZones(networks: readonly string[]): string[] {
  const zones4 = networks.flatMap((network) => {
    const [address = '', prefix = ''] = network.split('/')
    const parts = Math.ceil(Number(prefix) / 8)
    const octets = address.split('.').map(Number).slice(0, parts)
    const last = octets.pop() ?? 0
    const count = 2 ** (parts * 8 - Number(prefix))
    return Array.from({ length: count }, (_, number) =>
      [...octets, last + number].toReversed().join('.').concat('.in-addr.arpa'),
    )
  })
  return [...new Set([...zones4, ...privateZones6])]
}
