import type { Subnet } from './subnet.ts'

/** A sandbox's link: its name on the host, and the MAC and address of its end inside. */
export interface Port {
  link: string
  mac: string
  address: string
}

/**
 * The links of the sandboxes of one data directory: names, addresses, and the lines of `ip -batch` that make them.
 *
 *     atl<hash>         gateway address and subnet, without ports
 *     atl<hash><slot>   the host's end of one sandbox's link, without an address
 *
 * Each end on the host has a route to one sandbox, and only that sandbox may send from it (`rules.ts`). Neither end uses ARP: both have
 * permanent neighbour entries of each other, which survive a full neighbour table (all namespaces share it), and a sandbox learns no
 * other address of the host. All ends on the host have the MAC of the sandboxes' gateway.
 */
export class Layout {
  readonly subnet: Subnet
  readonly gatewayLink: string
  readonly #hash: string
  readonly gatewayMac: string

  constructor(hash: string, subnet: Subnet) {
    this.subnet = subnet
    this.#hash = hash
    this.gatewayLink = `atl${hash}`
    this.gatewayMac = this.#mac(subnet.gatewayAddress)
  }

  port(slot: number): Port {
    const address = this.subnet.address(slot)
    // The kernel takes fifteen characters, and the largest subnet has slots of four digits.
    return { link: `${this.gatewayLink}${slot.toString(36)}`, mac: this.#mac(address), address }
  }

  isPortLink(link: string): boolean {
    return link.startsWith(this.gatewayLink) && link !== this.gatewayLink
  }

  /** Also replaces the state of an earlier start. */
  openGateway(): string[] {
    const link = this.gatewayLink
    return [
      `address replace ${this.subnet.gatewayAddress}/${this.subnet.prefix} dev ${link}`,
      // A request for an unused address of the subnet gets no answer and no neighbour entry.
      `link set dev ${link} arp off up`,
    ]
  }

  /** `namespace` is that of the other end, in any form that `ip` takes. */
  makePort({ link, mac }: Port, namespace?: string): string[] {
    const there = namespace === undefined ? '' : ` netns ${namespace}`
    return [`link add name ${link} address ${this.gatewayMac} type veth peer name eth0${there} address ${mac}`]
  }

  /** Joins the host's end to the network, whatever its state: the kernel drops routes and entries of a link that goes down. */
  joinPort({ link, mac, address }: Port): string[] {
    const { gatewayAddress } = this.subnet
    return [
      `link set dev ${link} addrgenmode none arp off up`,
      // Without a source the host would send its errors from any of its addresses.
      `route replace ${address}/32 dev ${link} src ${gatewayAddress} scope link`,
      neighbour(address, mac, link),
    ]
  }

  /** Configures the end inside; existing parts stay. */
  joinSandbox({ address }: Port): string[] {
    const { gatewayAddress } = this.subnet
    return [
      'link set dev lo up',
      `address replace ${address}/32 dev eth0`,
      'link set dev eth0 up',
      // Only the gateway is on the link: requests for other addresses must not fill the neighbour table.
      `route replace ${gatewayAddress} dev eth0 scope link`,
      `route replace default via ${gatewayAddress}`,
      neighbour(gatewayAddress, this.gatewayMac, 'eth0'),
    ]
  }

  /** An address always has the same MAC, so a neighbour entry that outlives its sandbox stays correct. */
  #mac(address: string): string {
    const bytes = address.split('.').map((part) => Number(part).toString(16).padStart(2, '0'))
    return ['02', this.#hash.slice(0, 2), ...bytes].join(':')
  }
}

function neighbour(address: string, mac: string, link: string): string {
  return `neighbour replace ${address} lladdr ${mac} dev ${link} nud permanent`
}
