/**
 * The network of the sandboxes of one data directory: a bridge with isolated ports, packet rules, a DNS forwarder. All
 * names carry the hash of the data directory, so that several servers run side by side.
 */
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { ServiceError } from '../../errors.ts'
import { CommandError, run } from '../command.ts'
import { exists } from '../exists.ts'
import { Forwarder } from './dns.ts'
import { portElement, rulesFile } from './rules.ts'
import type { PortIdentity } from './rules.ts'
import type { Subnet } from './subnet.ts'

export { Subnet } from './subnet.ts'

export const gatewayPort = 4180
export const gatewayName = 'gateway.atoll.internal'
const networksDir = '/sys/class/net'
const forwardingFile = '/proc/sys/net/ipv4/ip_forward'

export interface NetworkOptions {
  /** Eight hexadecimal digits; part of every name. */
  hash: string
  subnet: Subnet
  /** A folder of this data directory that a reboot empties. */
  runDir: string
  log: (message: string) => void
}

export class Network {
  readonly subnet: Subnet
  readonly #bridge: string
  readonly #linkPrefix: string
  readonly #table: string
  readonly #hash: string
  readonly #forwarder: Forwarder
  readonly #log: (message: string) => void
  /** Slots whose packets may pass the bridge, or shall; unknown until the rules are loaded. */
  #admitted: Set<number> | undefined

  constructor(options: NetworkOptions) {
    this.subnet = options.subnet
    this.#hash = options.hash
    this.#log = options.log
    this.#bridge = `atl${options.hash}`
    this.#linkPrefix = `av${options.hash}`
    this.#table = `atoll_${options.hash}`
    this.#forwarder = new Forwarder({
      pidFile: `${options.runDir}/dnsmasq.pid`,
      address: options.subnet.bridgeAddress,
      ownNames: [gatewayName],
    })
  }

  /** Prepares all that is shared. `slots` are those of the sandboxes that run. Throws `unavailable`. */
  async open(slots: readonly number[]): Promise<void> {
    await this.#openBridge(slots)
    await this.#openForwarding()
    await this.#loadRules(slots)
    this.#admitted = new Set(slots)
    await this.#removeLinksBut(new Set(slots))
    await this.#forwarder.ensure()
  }

  /** Starts the DNS forwarder again if it has died. */
  async ensureForwarder(): Promise<void> {
    await this.#forwarder.ensure()
  }

  /** Removes all that is shared. Forwarding of packets stays on: others on this host may rely on it by now. */
  async close(): Promise<void> {
    await this.#forwarder.stop()
    await this.#removeLinksBut(new Set())
    const table = this.#table
    const empty = ['inet', 'bridge'].map((family) => `table ${family} ${table}\ndelete table ${family} ${table}\n`)
    this.#admitted = undefined
    await run(['nft', '-f', '-'], { input: empty.join('') })
    await this.#deleteLink(this.#bridge)
  }

  /** Lets a sandbox's packets pass the bridge; before `attach` or at the same time. */
  async admit(slot: number): Promise<void> {
    this.#admitted?.add(slot)
    await run(['nft', 'add', 'element', 'bridge', this.#table, 'ports', `{ ${portElement(this.#port(slot))} }`])
  }

  /**
   * Gives the network namespace of process `pid` its interface, address and route. What is there already stays, so that it
   * can be done again where a server died in the middle of it.
   *
   * While processes were restored, their connections had the address that they were made from, on the loopback: `held`.
   * That ends, and connections of it to the outside are closed unless they are to be kept.
   */
  async attach(slot: number, pid: number, held?: { address: string; keepConnections: boolean }): Promise<void> {
    const { link, mac, address } = this.#port(slot)
    const inside = ['nsenter', `--net=/proc/${pid}/ns/net`] as const
    const made = await exists(`${networksDir}/${link}`)
    const join = run(['ip', '-batch', '-'], {
      input: [
        ...(made ? [] : [`link add name ${link} type veth peer name eth0 netns ${pid} address ${mac}`]),
        `link set dev ${link} master ${this.#bridge} addrgenmode none`,
        `link set dev ${link} type bridge_slave isolated on`,
        `link set dev ${link} up`,
        neighbour(address, mac, this.#bridge),
      ].join('\n'),
    })
    // Closes what has a peer; what listens stays. The interface inside is still down.
    const close =
      held?.keepConnections === false
        ? run([...inside, 'ss', '--kill', '--no-header', '--tcp', '--udp', 'src', held.address])
        : undefined
    await Promise.all([join, close])
    const { bridgeAddress } = this.subnet
    // Only the gateway is on the link: whoever else a sandbox asks for must not fill the host's table of neighbours.
    const input = [
      'link set dev lo up',
      `address replace ${address}/32 dev eth0`,
      'link set dev eth0 up',
      `route replace ${bridgeAddress} dev eth0 scope link`,
      `route replace default via ${bridgeAddress}`,
      neighbour(bridgeAddress, this.#mac(bridgeAddress), 'eth0'),
    ]
    if (held !== undefined && !made) input.unshift(`address delete ${held.address}/32 dev lo`)
    if (held !== undefined && made) await this.#release(inside, held.address)
    await run([...inside, 'ip', '-batch', '-'], { input: input.join('\n') })
  }

  async #release(inside: readonly [string, string], address: string): Promise<void> {
    await run([...inside, 'ip', 'address', 'delete', `${address}/32`, 'dev', 'lo']).catch((error: unknown) => {
      if (!(error instanceof CommandError) || !/Address not found|Cannot assign/.test(error.stderr)) throw error
    })
  }

  /** Parts a running sandbox from the network, or joins it again; its connections do not notice but for the silence. */
  async silence(slot: number, silent: boolean): Promise<void> {
    await run(['ip', 'link', 'set', 'dev', this.#port(slot).link, silent ? 'down' : 'up'])
  }

  hasPort(slot: number): Promise<boolean> {
    return exists(`${networksDir}/${this.#port(slot).link}`)
  }

  address(slot: number): string {
    return this.subnet.address(slot)
  }

  /** Undoes `admit` and `attach`; harmless when there is nothing to undo. */
  async detach(slot: number): Promise<void> {
    const port = this.#port(slot)
    await Promise.all([this.#deletePort(port), this.#refuse(slot, port)])
  }

  /** Changing the rules takes as long as a mount, so it is left out where nothing would change. */
  async #refuse(slot: number, port: PortIdentity): Promise<void> {
    if (this.#admitted?.has(slot) === false) return
    await run(['nft', 'delete', 'element', 'bridge', this.#table, 'ports', `{ ${portElement(port)} }`]).catch(absent)
    this.#admitted?.delete(slot)
  }

  #port(slot: number): PortIdentity {
    const address = this.subnet.address(slot)
    return { link: `${this.#linkPrefix}${slot.toString(16)}`, mac: this.#mac(address), address }
  }

  /** An address always has the same MAC, so that no neighbour entry that outlives its sandbox is stale. */
  #mac(address: string): string {
    const bytes = address.split('.').map((part) => Number(part).toString(16).padStart(2, '0'))
    return ['02', this.#hash.slice(0, 2), ...bytes].join(':')
  }

  async #openBridge(slots: readonly number[]): Promise<void> {
    const bridge = this.#bridge
    try {
      if (!(await exists(`${networksDir}/${bridge}`)))
        await run(['ip', 'link', 'add', 'name', bridge, 'type', 'bridge'])
      const wanted = `${this.subnet.bridgeAddress}/${this.subnet.prefix}`
      for (const { link, address } of await addresses()) {
        if (link === bridge && address !== wanted) await run(['ip', 'address', 'delete', address, 'dev', bridge])
        if (link !== bridge && this.subnet.meets(address)) throw this.#taken(link, address)
      }
      await disableIpv6(bridge)
      await run(['ip', '-batch', '-'], {
        input: [
          `link set dev ${bridge} address ${this.#mac(this.subnet.bridgeAddress)} type bridge forward_delay 0`,
          `address replace ${wanted} dev ${bridge}`,
          `link set dev ${bridge} up`,
          // The kernel forgets them all when it is told an address of the bridge, also one that it has.
          ...slots.map((slot) => this.#port(slot)).map(({ address, mac }) => neighbour(address, mac, bridge)),
        ].join('\n'),
      })
    } catch (error) {
      if (error instanceof ServiceError) throw error
      throw new ServiceError('unavailable', `the bridge of the sandboxes cannot be made: ${message(error)}`, {
        cause: error,
      })
    }
  }

  #taken(link: string, address: string): ServiceError {
    const hint = 'choose another one with ATOLL_SUBNET'
    return new ServiceError(
      'unavailable',
      `subnet ${this.subnet.cidr} meets ${address} on ${link} of this host: ${hint}`,
    )
  }

  async #openForwarding(): Promise<void> {
    if ((await readFile(forwardingFile, 'utf8')).trim() === '1') return
    await writeFile(forwardingFile, '1').catch((error: unknown) => {
      throw new ServiceError('unavailable', `net.ipv4.ip_forward cannot be switched on: ${message(error)}`, {
        cause: error,
      })
    })
    this.#log('net.ipv4.ip_forward was off and is now on')
  }

  async #loadRules(slots: readonly number[]): Promise<void> {
    const input = rulesFile({
      table: this.#table,
      bridge: this.#bridge,
      linkPrefix: this.#linkPrefix,
      subnet: this.subnet,
      gatewayPort,
      ports: slots.map((slot) => this.#port(slot)),
    })
    await run(['nft', '-f', '-'], { input }).catch((error: unknown) => {
      const hint =
        'the kernel needs nf_tables (inet and bridge families), nft_masq, nft_fib_inet and connection tracking'
      throw new ServiceError('unavailable', `the packet rules cannot be loaded (${hint}): ${message(error)}`, {
        cause: error,
      })
    })
  }

  async #removeLinksBut(slots: ReadonlySet<number>): Promise<void> {
    const kept = new Set([...slots].map((slot) => this.#port(slot).link))
    const links = (await readdir(networksDir)).filter((name) => name.startsWith(this.#linkPrefix) && !kept.has(name))
    for (const link of links) await this.#deleteLink(link)
  }

  async #deletePort({ link, address }: PortIdentity): Promise<void> {
    const forget = `neighbour delete ${address} dev ${this.#bridge}`
    try {
      // What is not there is no reason to leave the other.
      await run(['ip', '-force', '-batch', '-'], { input: `${forget}\nlink delete dev ${link}` })
    } catch (error) {
      if (await exists(`${networksDir}/${link}`)) throw error
    }
  }

  async #deleteLink(link: string): Promise<void> {
    const file = `${networksDir}/${link}`
    if (!(await exists(file))) return
    try {
      await run(['ip', 'link', 'delete', 'dev', link])
    } catch (error) {
      // It goes by itself when the namespace at its other end does.
      if (await exists(file)) throw error
    }
  }
}

/** Part of a batch of `ip`: an entry that is not forgotten however full the table is, which all namespaces share. */
function neighbour(address: string, mac: string, link: string): string {
  return `neighbour replace ${address} lladdr ${mac} dev ${link} nud permanent`
}

/** The IPv4 addresses of this host with their prefixes, such as `192.0.2.2/24`. */
async function addresses(): Promise<{ link: string; address: string }[]> {
  const links = JSON.parse(await run(['ip', '-json', '-4', 'address', 'show'])) as {
    ifname?: string
    addr_info?: { local: string; prefixlen: number }[]
  }[]
  return links.flatMap(({ ifname = '', addr_info = [] }) =>
    addr_info.map((info) => ({ link: ifname, address: `${info.local}/${info.prefixlen}` })),
  )
}

async function disableIpv6(link: string): Promise<void> {
  const file = `/proc/sys/net/ipv6/conf/${link}/disable_ipv6`
  if (await exists(file)) await writeFile(file, '1')
}

/** Swallows the failure to remove what is not there (any more). */
function absent(error: unknown): void {
  if (!(error instanceof CommandError) || !/No such file or directory|does not exist/.test(error.stderr)) throw error
}

function message(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
