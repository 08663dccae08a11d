/**
 * The network of the sandboxes of one data directory: a routed link for each (`layout.ts`), packet rules, a DNS forwarder.
 * All names carry the hash of the data directory, so that several servers can run side by side.
 */
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { isDeepStrictEqual } from 'node:util'
import { ServiceError } from '../../errors.ts'
import { KeyedMutex } from '../../lib/async/mutex.ts'
import type { EgressState } from '../../sandbox/ports/egress.ts'
import { CommandError, messageOf, type Run } from '../command.ts'
import { exists } from '../exists.ts'
import { readNow } from '../read-now.ts'
import type { HostTool } from '../hostd/index.ts'
import { Forwarder } from './dns.ts'
import { type EgressStates, movedTo, stricter } from './egress.ts'
import { HostFirewall } from './host-firewall/index.ts'
import { Layout } from './layout.ts'
import { addedLimits, type NetworkLimit, type NetworkLimits, removedLimits } from './limits.ts'
import { connectionBounds, rulesFile } from './rules.ts'
import type { Subnet } from './subnet.ts'

export { explicitProxy, stricter } from './egress.ts'
export { deniedNetworks } from './rules.ts'
export { Subnet } from './subnet.ts'

export const gatewayPort = 4180
export const metadataPort = 4181
/** Where the process that holds egress rules takes connections of sandboxes, and their questions for names. */
export const egressPort = 4182
export const egressDnsPort = 4183
export const gatewayName = 'gateway.atoll.internal'
const networksDir = '/sys/class/net'
const settingsDir = '/proc/sys/net/ipv4'
const tableMaxFile = '/proc/sys/net/netfilter/nf_conntrack_max'
/** Timeout of one batch, which has up to a thousand links. */
const joinTimeoutMs = 300_000

export interface NetworkOptions {
  /** Eight hexadecimal digits; part of every name. */
  hash: string
  subnet: Subnet
  /** A folder of this data directory that a reboot empties. */
  runDir: string
  /** Add no rules to the firewall of the host. */
  leaveHostFirewall?: boolean | undefined
  run: Run
  log: (message: string) => void
  /** The file with the size of the host's table of connections. */
  tableMaxFile?: string
}

/** A process, distinct from a later one with the same pid. */
export interface NamespaceOwner {
  pid: number
  /** Field 22 of `/proc/<pid>/stat`. */
  startTicks: number
}

export class Network {
  readonly subnet: Subnet
  readonly hostFirewall: HostFirewall
  readonly #layout: Layout
  readonly #table: string
  readonly #forwarder: Forwarder
  readonly #tableMaxFile: string
  readonly #run: Run
  readonly #log: (message: string) => void
  #hostd: HostTool | undefined
  /** The limits in the loaded rules. */
  #limits: NetworkLimits = new Map()
  /** Whose connections the loaded rules give to the process that holds egress rules. */
  #egress: EgressStates = new Map()
  /** Serialises changes of the rules: each is made from all that holds. */
  readonly #changes = new KeyedMutex()
  /** Whether the rules in the kernel are made from the above, as far as this process knows. */
  #areLoaded = false
  /** The size of the table of connections for which the loaded rules were made. */
  #tableMax: number | undefined
  /** Removals of links in the background, by slot. */
  readonly #leaving = new Map<number, Promise<void>>()

  constructor(options: NetworkOptions) {
    this.subnet = options.subnet
    this.#run = options.run
    this.#log = options.log
    this.#layout = new Layout(options.hash, options.subnet)
    this.#table = `atoll_${options.hash}`
    this.#tableMaxFile = options.tableMaxFile ?? tableMaxFile
    this.hostFirewall = new HostFirewall({
      run: options.run,
      hash: options.hash,
      cidr: options.subnet.cidr,
      hostAddress: options.subnet.gatewayAddress,
      gatewayPort,
      metadataPort,
      egressPort,
      egressDnsPort,
      isLeft: options.leaveHostFirewall ?? false,
      log: options.log,
    })
    this.#forwarder = new Forwarder({
      pidFile: `${options.runDir}/dnsmasq.pid`,
      address: options.subnet.gatewayAddress,
      subnet: options.subnet.cidr,
      ownNames: [gatewayName],
      run: options.run,
    })
  }

  /**
   * Prepares the shared parts. `slots` are those of the running sandboxes, `egress` has what holds for those that are not open; `hostd`
   * configures their namespaces. Throws `unavailable`.
   */
  async open(
    slots: readonly number[],
    hostd: HostTool,
    egress: ReadonlyMap<number, EgressState> = new Map(),
  ): Promise<void> {
    this.#hostd = hostd
    await this.#openGateway().catch(unavailable('the gateway of the sandboxes cannot be made'))
    await this.#openForwarding()
    // Before the rules: those that an earlier server has loaded may hold a sandbox that nobody names any more.
    await this.#removeLinksBut(new Set(slots))
    this.#egress = new Map([...egress].map(([slot, state]) => [this.subnet.address(slot), state]))
    await this.#change(() => this.#loadRules())
    await this.hostFirewall.open()
    await this.#rejoin(slots)
    await this.#forwarder.ensure()
  }

  /** Starts a dead DNS forwarder again. */
  async tendForwarder(): Promise<void> {
    await this.#forwarder.ensure()
  }

  /**
   * Loads the packet rules again after the size of the host's table changed, or after a removal: `flush ruleset`, such as that
   * of nftables.service, removes the rules of all programs.
   */
  async tendRules(): Promise<void> {
    const areThere = await this.#hasRules()
    if (areThere && this.#areLoaded && (await this.#readTableMax()) === this.#tableMax) return
    await this.#change(() => this.#loadRules())
    if (!areThere) this.#log('the packet rules of the sandboxes were removed by somebody and are loaded again')
  }

  /** Removes the shared parts. Forwarding of packets stays on, since other programs of this host may rely on it by now. */
  async close(): Promise<void> {
    await Promise.allSettled(this.#leaving.values())
    await this.hostFirewall.close()
    await this.#forwarder.stop()
    await this.#removeLinksBut(new Set())
    await this.#run(['nft', '-f', '-'], { input: `table inet ${this.#table}\ndelete table inet ${this.#table}\n` })
    await this.#deleteLink(this.#layout.gatewayLink)
  }

  /**
   * Gives the network namespace of a process its interface, address and route. Existing parts stay, so a server can repeat the call after
   * a crash in the middle. Throws `unavailable` with the reason, also when the process has ended: the namespace of a later process with
   * the same pid stays untouched.
   *
   * `held` is the address of restored connections, which the loopback has during the restore. `attach` removes the address from there
   * and, without `keepConnections`, closes its connections to the outside. `egress` holds before the link is there; without it what held goes on.
   */
  async attach(
    slot: number,
    { pid, startTicks }: NamespaceOwner,
    held?: { address: string; keepConnections: boolean },
    egress?: EgressState,
  ): Promise<void> {
    const { link, mac, address } = this.#layout.port(slot)
    const { gatewayAddress } = this.subnet
    const join = async () => {
      // The link of the sandbox that had the slot before would be taken for the link of this one.
      if (this.#leaving.has(slot)) await this.detach(slot)
      if (this.#hostd === undefined) throw new Error('the network is not open')
      if (egress !== undefined) await this.setEgress(slot, egress)
      await this.#hostd.runTool({
        op: 'join-network',
        process: { pid, startTicks },
        link,
        address,
        mac,
        gateway: gatewayAddress,
        gatewayMac: this.#layout.gatewayMac,
        // Closes connections, not listeners. The interface inside is still down.
        held: held && { address: held.address, close: !held.keepConnections },
      })
      await forward(link)
    }
    await join().catch(unavailable('the sandbox cannot be joined to the network'))
  }

  /** Takes a running sandbox off the network, or back on; its connections see only silence. */
  async silence(slot: number, silent: boolean): Promise<void> {
    const port = this.#layout.port(slot)
    await batch(this.#run, silent ? [`link set dev ${port.link} down`] : this.#layout.joinPort(port))
  }

  /** Bytes that have passed the link of a sandbox since it was attached, as the sandbox sees them. Undefined without a link. Does not yield. */
  traffic(slot: number): { receivedBytes: number; sentBytes: number } | undefined {
    const folder = `${networksDir}/${this.#layout.port(slot).link}/statistics`
    const [sent, received] = [readNow(`${folder}/rx_bytes`), readNow(`${folder}/tx_bytes`)]
    if (sent === undefined || received === undefined) return undefined
    return { receivedBytes: Number(received), sentBytes: Number(sent) }
  }

  /**
   * Bounds what sandboxes send and receive, each way; those of one group have the rate together. Slots that are not named have no bound. A change
   * replaces all of it at once.
   */
  async limit(limits: ReadonlyMap<number, NetworkLimit>): Promise<void> {
    const byAddress = new Map([...limits].map(([slot, limit]) => [this.subnet.address(slot), limit]))
    await this.#change(async () => {
      if (isDeepStrictEqual(byAddress, this.#limits)) return
      const table = `inet ${this.#table}`
      const lines = [...removedLimits(table, this.#limits), ...addedLimits(table, byAddress)]
      await this.#run(['nft', '-f', '-'], { input: lines.join('\n') })
      this.#limits = byAddress
    })
  }

  /**
   * Brings a sandbox to a state, attached or not, from one moment to the next. Connections that it has made directly end when it must not have them
   * any more; those that the process has are its matter. A failure leaves the state that held, or the stricter of the two.
   */
  async setEgress(slot: number, state: EgressState): Promise<void> {
    const address = this.subnet.address(slot)
    await this.#change(async () => {
      const before = this.egress(slot)
      if (before === state && this.#areLoaded) return
      this.#egress = withState(this.#egress, address, state)
      try {
        if (!this.#areLoaded) throw new Error('the packet rules are not those that hold')
        await this.#run(['nft', '-f', '-'], { input: movedTo(`inet ${this.#table}`, address, state).join('\n') })
      } catch {
        // Somebody may have removed the rules.
        this.#areLoaded = false
        await this.#loadRules().catch((error: unknown) => {
          this.#egress = withState(this.#egress, address, stricter(before, state))
          throw error
        })
      }
    })
  }

  /** What holds for a sandbox. */
  egress(slot: number): EgressState {
    return this.#egress.get(this.subnet.address(slot)) ?? 'open'
  }

  address(slot: number): string {
    return this.subnet.address(slot)
  }

  /**
   * Undoes `attach`; a repeat is harmless. The route and the neighbour entry go with the link. What held for the sandbox holds until the link is
   * gone, and if it cannot be ended then, until the next one has the slot.
   */
  async detach(slot: number): Promise<void> {
    await this.#leaving.get(slot)?.catch(() => undefined)
    await this.#deleteLink(this.#layout.port(slot).link)
    this.#leaving.delete(slot)
    await this.setEgress(slot, 'open').catch((error: unknown) =>
      this.#log(`the egress rules of slot ${slot} stay for now: ${messageOf(error)}`),
    )
  }

  /**
   * Detaches a slot in the background; from now on it has no owner. The kernel takes tens of milliseconds for that, longer while it removes
   * other namespaces. The next `attach` of the slot waits for the end, and detaches again after a failure. The next `open` removes links
   * without a slot.
   */
  release(slot: number): void {
    const leaving = this.detach(slot)
    this.#leaving.set(slot, leaving)
    leaving.catch((error: unknown) => this.#log(`the link of slot ${slot} stays for now: ${messageOf(error)}`))
  }

  async #openGateway(): Promise<void> {
    const { gatewayLink } = this.#layout
    // A bridge without ports: all kernels have it, and it carries an address like a dummy.
    if (!(await exists(`${networksDir}/${gatewayLink}`)))
      await batch(this.#run, [`link add name ${gatewayLink} type bridge`])
    const wanted = `${this.subnet.gatewayAddress}/${this.subnet.prefix}`
    for (const { link, address } of await addresses(this.#run)) {
      if (link === gatewayLink && address !== wanted) await batch(this.#run, [`address delete ${address} dev ${link}`])
      if (link === gatewayLink || !this.subnet.meets(address)) continue
      const meeting = `subnet ${this.subnet.cidr} meets ${address} on ${link} of this host`
      throw new ServiceError('unavailable', `${meeting}: choose another one with ATOLL_SUBNET`)
    }
    const disableIpv6 = `/proc/sys/net/ipv6/conf/${gatewayLink}/disable_ipv6`
    if (await exists(disableIpv6)) await writeFile(disableIpv6, '1')
    await batch(this.#run, this.#layout.openGateway())
  }

  async #openForwarding(): Promise<void> {
    const file = `${settingsDir}/ip_forward`
    if ((await readFile(file, 'utf8')).trim() === '1') return
    await writeFile(file, '1').catch(unavailable('net.ipv4.ip_forward cannot be switched on'))
    this.#log('net.ipv4.ip_forward was off and is now on')
  }

  #change(work: () => Promise<void>): Promise<void> {
    return this.#changes.run('the rules', work)
  }

  async #loadRules(): Promise<void> {
    const tableMax = await this.#readTableMax()
    const rules = rulesFile({
      table: this.#table,
      linkPrefix: this.#layout.gatewayLink,
      subnet: this.subnet,
      gatewayPort,
      metadataPort,
      egressPort,
      egressDnsPort,
      bounds: connectionBounds(tableMax),
      egress: this.#egress,
    })
    const input = [rules, ...addedLimits(`inet ${this.#table}`, this.#limits)].join('\n')
    const hint =
      'the kernel needs nf_tables (inet family), nft_nat, nft_masq, nft_fib_inet and connection tracking with limits and timeouts'
    await this.#run(['nft', '-f', '-'], { input }).catch(unavailable(`the packet rules cannot be loaded (${hint})`))
    this.#tableMax = tableMax
    this.#areLoaded = true
  }

  async #hasRules(): Promise<boolean> {
    try {
      // Look for the rule, not the chain alone, which `flush table` leaves.
      return (await this.#run(['nft', 'list', 'chain', 'inet', this.#table, 'raw'])).includes('jump from_sandbox')
    } catch (error) {
      if (error instanceof CommandError && /No such file or directory/.test(error.stderr)) return false
      throw error
    }
  }

  /** The size of the table; undefined until something, such as these rules, makes the kernel track connections. */
  async #readTableMax(): Promise<number | undefined> {
    const max = Number(await readFile(this.#tableMaxFile, 'utf8').catch(() => 'unknown'))
    return Number.isSafeInteger(max) ? max : undefined
  }

  /** Brings the links of sandboxes up: a dump that was cut off leaves its link down. */
  async #rejoin(slots: readonly number[]): Promise<void> {
    const links = new Set(await readdir(networksDir))
    const ports = slots.map((slot) => this.#layout.port(slot)).filter(({ link }) => links.has(link))
    if (ports.length === 0) return
    const lines = ports.flatMap((port) => this.#layout.joinPort(port))
    // A sandbox that ends meanwhile takes its link with it and does not stop the others.
    await this.#run(['ip', '-force', '-batch', '-'], { input: lines.join('\n'), timeoutMs: joinTimeoutMs }).catch(
      (error: unknown) => this.#log(`not all sandboxes that run have joined the network: ${messageOf(error)}`),
    )
    for (const { link } of ports) await forward(link).catch((error: unknown) => this.#log(messageOf(error)))
  }

  async #removeLinksBut(slots: ReadonlySet<number>): Promise<void> {
    const kept = new Set([...slots].map((slot) => this.#layout.port(slot).link))
    for (const link of await readdir(networksDir)) {
      if (this.#layout.isPortLink(link) && !kept.has(link)) await this.#deleteLink(link)
    }
  }

  async #deleteLink(link: string): Promise<void> {
    const file = `${networksDir}/${link}`
    if (!(await exists(file))) return
    try {
      await (this.#hostd?.runTool({ op: 'delete-link', link }) ?? this.#run(['ip', 'link', 'delete', 'dev', link]))
    } catch (error) {
      // A link goes by itself with the namespace at its other end.
      if (await exists(file)) throw error
    }
  }
}

function withState(states: EgressStates, address: string, state: EgressState): EgressStates {
  const others = [...states].filter(([other]) => other !== address)
  return new Map(state === 'open' ? others : [...others, [address, state]])
}

async function batch(run: Run, lines: readonly string[]): Promise<void> {
  await run(['ip', '-batch', '-'], { input: lines.join('\n') })
}

/** The IPv4 addresses of this host with their prefixes, such as `192.0.2.2/24`. */
async function addresses(run: Run): Promise<{ link: string; address: string }[]> {
  const links = JSON.parse(await run(['ip', '-json', '-4', 'address', 'show'])) as {
    ifname?: string
    addr_info?: { local: string; prefixlen: number }[]
  }[]
  return links.flatMap(({ ifname = '', addr_info = [] }) =>
    addr_info.map((info) => ({ link: ifname, address: `${info.local}/${info.prefixlen}` })),
  )
}

/** Makes a link forward packets: a host that forwards can still switch it off for new links. A link that is gone needs nothing. */
async function forward(link: string): Promise<void> {
  const file = `${settingsDir}/conf/${link}/forwarding`
  if (readNow(file)?.trim() === '0') await writeFile(file, '1')
}

/** For `catch`: throws `unavailable`, or the `ServiceError` itself. */
function unavailable(failure: string): (error: unknown) => never {
  return (error) => {
    if (error instanceof ServiceError) throw error
    throw new ServiceError('unavailable', `${failure}: ${messageOf(error)}`, { cause: error })
  }
}
