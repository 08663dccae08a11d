import type { Subnet } from './subnet.ts'

/** The two ends of a sandbox's link: its name on the host, and what the end inside is called on it. */
export interface Port {
  link: string
  mac: string
  address: string
}

/**
 * How the sandboxes of one data directory are wired: names, addresses, and the lines for `ip -batch` that make them.
 *
 *     atl<hash>         gateway address and subnet; nothing is behind it
 *     atl<hash><slot>   the host's end of one sandbox's link, without an address
 *
 * Each end on the host has a route to one sandbox, and is where that may send from (`rules.ts`). Neither end asks or answers
 * who else is on the link: both know each other by permanent entries, which are not forgotten however full the table of
 * neighbours is that all namespaces share, and a sandbox learns no other address of the host. All ends on the host have
 * the MAC that sandboxes know as their gateway's.
 */
export class Layout {
  readonly subnet: Subnet
  readonly gatewayLink: string
  readonly #hash: string
  readonly #gatewayMac: string

  constructor(hash: string, subnet: Subnet) {
    this.subnet = subnet
    this.#hash = hash
    this.gatewayLink = `atl${hash}`
    this.#gatewayMac = this.#mac(subnet.gatewayAddress)
  }

  port(slot: number): Port {
    const address = this.subnet.address(slot)
    // The kernel takes fifteen characters, and the largest subnet has slots of four digits.
    return { link: `${this.gatewayLink}${slot.toString(36)}`, mac: this.#mac(address), address }
  }

  isPortLink(link: string): boolean {
    return link.startsWith(this.gatewayLink) && link !== this.gatewayLink
  }

  /** Also in place of what an earlier start has left. */
  openGateway(): string[] {
    const link = this.gatewayLink
    return [
      `address replace ${this.subnet.gatewayAddress}/${this.subnet.prefix} dev ${link}`,
      // Who asks for an address of the subnet that no sandbox has gets no answer and no entry.
      `link set dev ${link} arp off up`,
    ]
  }

  /** `namespace` is where the other end goes: a path, or whatever else `ip` takes. */
  makePort({ link, mac }: Port, namespace?: string): string[] {
    const there = namespace === undefined ? '' : ` netns ${namespace}`
    return [`link add name ${link} address ${this.#gatewayMac} type veth peer name eth0${there} address ${mac}`]
  }

  /** Joins the host's end to the network, whatever state it is in: the kernel forgets routes and entries of one that goes down. */
  joinPort({ link, mac, address }: Port): string[] {
    const { gatewayAddress } = this.subnet
    return [
      `link set dev ${link} addrgenmode none arp off up`,
      // Without a source the host would sign its errors with any address that it has.
      `route replace ${address}/32 dev ${link} src ${gatewayAddress} scope link`,
      neighbour(address, mac, link),
    ]
  }

  /** A port of a bridge, as earlier versions made them, under its name of today. The way to it is made anew by `joinPort`. */
  partFromBridge(bridged: string, { link }: Port): string[] {
    return [
      `link set dev ${bridged} down`,
      `link set dev ${bridged} nomaster`,
      `link set dev ${bridged} address ${this.#gatewayMac}`,
      // Last: from then on it counts as one that was parted.
      `link set dev ${bridged} name ${link}`,
    ]
  }

  /** The end inside. What is there already stays. */
  joinSandbox({ address }: Port): string[] {
    const { gatewayAddress } = this.subnet
    return [
      'link set dev lo up',
      `address replace ${address}/32 dev eth0`,
      'link set dev eth0 up',
      // Only the gateway is on the link: whoever else a sandbox asks for must not fill the table of neighbours.
      `route replace ${gatewayAddress} dev eth0 scope link`,
      `route replace default via ${gatewayAddress}`,
      neighbour(gatewayAddress, this.#gatewayMac, 'eth0'),
    ]
  }

  /** Of the same slot in earlier versions. */
  bridgedLink(slot: number): string {
    return `${this.bridgedPrefix}${slot.toString(16)}`
  }

  get bridgedPrefix(): string {
    return `av${this.#hash}`
  }

  /** An address always has the same MAC, so that no neighbour entry that outlives its sandbox is stale. */
  #mac(address: string): string {
    const bytes = address.split('.').map((part) => Number(part).toString(16).padStart(2, '0'))
    return ['02', this.#hash.slice(0, 2), ...bytes].join(':')
  }
}

function neighbour(address: string, mac: string, link: string): string {
  return `neighbour replace ${address} lladdr ${mac} dev ${link} nud permanent`
}
