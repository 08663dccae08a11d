import type { Subnet } from './subnet.ts'

/**
 * Where no sandbox may connect to, whatever the routing table says: this host's neighbourhood, other private networks,
 * carrier-grade NAT, link-local with the clouds' metadata services, documentation, benchmarks, multicast, reserved.
 */
export const deniedNetworks = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.88.99.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4',
  '240.0.0.0/4',
] as const

/** The table of connections is the whole host's: one sandbox may not fill it. */
const connectionsPerSandbox = 4_096
/** So is the gateway's: a sandbox that holds connections open must not keep the others from their models. */
const gatewayConnectionsPerSandbox = 64
/** One forwarder answers all sandboxes, with few processes for TCP. A burst is a program that looks up all its peers at once. */
const dnsConnectionsPerSandbox = 4
const dnsQueriesPerSecond = 50
const dnsQueriesBurst = 500

/** What one sandbox may call itself on its own port of the bridge. */
export interface PortIdentity {
  link: string
  mac: string
  address: string
}

export interface RulesOptions {
  table: string
  bridge: string
  linkPrefix: string
  subnet: Subnet
  gatewayPort: number
  ports: readonly PortIdentity[]
}

/**
 * The whole rule set as one `nft -f` transaction; loading it again replaces it. Sandboxes share static rules: only the set
 * of port identities changes when one comes or goes.
 *
 * The decision is taken before the host's own address translation (`raw`), so that a port which the host forwards to a
 * container of its own is not a way around, and once more after it (`forward`). From outside nothing gets in: answers are
 * translated back only after `raw`, so a packet that names a sandbox there, or the bridge's own services, is no answer.
 */
export function rulesFile(options: RulesOptions): string {
  const { table, bridge, subnet } = options
  const fromSandbox = `iifname "${bridge}"`
  return `
table inet ${table}
delete table inet ${table}
table inet ${table} {
  set denied {
    type ipv4_addr
    flags interval
    auto-merge
    elements = { ${[...deniedNetworks, subnet.cidr].join(', ')} }
  }
  chain raw {
    type filter hook prerouting priority raw; policy accept;
    ${fromSandbox} jump from_sandbox
    iifname != { "lo", "${bridge}" } ip daddr ${subnet.cidr} drop
  }
  chain from_sandbox {
    meta nfproto != ipv4 drop
    ip saddr != ${subnet.cidr} drop
    ip daddr ${subnet.bridgeAddress} jump to_host
    ip daddr @denied drop
    fib daddr type != unicast drop
  }
  chain to_host {
    udp dport 53 accept
    tcp dport { 53, ${options.gatewayPort} } accept
    drop
  }
  set connections {
    type ipv4_addr
    size 65535
    flags dynamic
  }
  set gateway_connections {
    type ipv4_addr
    size 65535
    flags dynamic
  }
  set dns_connections {
    type ipv4_addr
    size 65535
    flags dynamic
  }
  set dns_queries {
    type ipv4_addr
    size 65535
    flags dynamic,timeout
    timeout 30s
  }
  chain input {
    type filter hook input priority filter - 10; policy accept;
    ${fromSandbox} tcp dport ${options.gatewayPort} jump bounded_gateway
    ${fromSandbox} udp dport 53 jump bounded_dns
    ${fromSandbox} tcp dport 53 ct state new jump bounded_dns
    ${fromSandbox} jump bounded
    ${fromSandbox} ip daddr != ${subnet.bridgeAddress} drop
    ${fromSandbox} jump to_host
  }
  chain forward {
    type filter hook forward priority filter - 10; policy accept;
    ${fromSandbox} jump forward_out
    oifname "${bridge}" jump forward_in
  }
  chain bounded_gateway {
    ct state new add @gateway_connections { ip saddr ct count over ${gatewayConnectionsPerSandbox} } drop
  }
  chain bounded_dns {
    update @dns_queries { ip saddr limit rate over ${dnsQueriesPerSecond}/second burst ${dnsQueriesBurst} packets } drop
    meta l4proto tcp add @dns_connections { ip saddr ct count over ${dnsConnectionsPerSandbox} } drop
  }
  chain bounded {
    ct state new add @connections { ip saddr ct count over ${connectionsPerSandbox} } drop
  }
  chain forward_out {
    meta nfproto != ipv4 drop
    jump bounded
    oifname "${bridge}" drop
    ip daddr @denied drop
  }
  chain forward_in {
    ct state established,related accept
    drop
  }
  chain postrouting {
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr ${subnet.cidr} oifname != "${bridge}" masquerade
  }
}
table bridge ${table}
delete table bridge ${table}
table bridge ${table} {
  set ports {
    type ifname . ether_addr . ipv4_addr
    ${options.ports.length === 0 ? '' : `elements = { ${options.ports.map(portElement).join(', ')} }`}
  }
  chain prerouting {
    type filter hook prerouting priority -300; policy accept;
    iifname "${options.linkPrefix}*" jump from_port
  }
  chain from_port {
    ether type ip iifname . ether saddr . ip saddr @ports accept
    ether type arp iifname . ether saddr . arp saddr ip @ports iifname . arp saddr ether . arp saddr ip @ports accept
    drop
  }
}
`
}

export function portElement(port: PortIdentity): string {
  return `"${port.link}" . ${port.mac} . ${port.address}`
}
