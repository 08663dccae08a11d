import { egressChains, type EgressStates, filledSets } from './egress.ts'
import { limitMaps, limitRule } from './limits.ts'
import type { Subnet } from './subnet.ts'

/**
 * Networks to which no sandbox can connect, whatever the routing table says: this host's own and other private networks,
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

/** The address of the metadata service for sandboxes, at port 80. The host does not have it, so the host still reaches that of its cloud. */
export const metadataAddress = '169.254.169.254'

/** All sandboxes share the connections of the gateway: one sandbox must not keep the others from their models. */
const gatewayConnectionsPerSandbox = 64
/** The metadata service likewise; it also closes the connection of a sandbox that asks too often. */
const metadataConnectionsPerSandbox = 64
const metadataConnectionsPerSecond = 10
const metadataConnectionsBurst = 64
/** What a sandbox may send to the metadata service. Requests have some hundred bytes, and many short ones keep the server busy. */
const metadataKilobytesPerSecond = 32
/** One packet has up to 64, as the link cuts it into segments (offload). */
const metadataKilobytesBurst = 128
/** One forwarder answers all sandboxes, with a process for each connection. A program that looks up all its peers makes a burst. */
const dnsConnectionsPerSandbox = 2
const dnsQueriesPerSecond = 50
const dnsQueriesBurst = 500
/** The least that RFC 5382 (REQ-5) lets a translator keep an idle connection. After the kernel's five days its sandbox is long gone. */
const idleSeconds = 7_440

/** Assumed where the size of the table is unknown or unlimited. */
const tableDefault = 262_144
/** Bounded, since each check of a count visits all counted connections. */
const sandboxConnectionsMax = 4_096

/** The share of sandboxes in the host's table of connections, by its size. */
export interface ConnectionBounds {
  /** Open connections of one sandbox. */
  perSandbox: number
  /** New connections of one sandbox in a second. Ended ones stay in the table for a while but leave the count. */
  perSandboxPerSecond: number
  /** Open connections of one group of sandboxes, beyond the own connections of each. */
  perGroup: number
  /** New connections of all sandboxes in a second, beyond the own connections of each. */
  perSecond: number
}

/** Number of groups; the end of its address decides the group of a sandbox. */
export const connectionGroups = 16
/** Own connections of each sandbox, independent of the others. */
export const ownConnections = 32
export const ownConnectionsPerSecond = 2
export const ownConnectionsBurst = 20
/** An ended connection stays in the table for this long. */
export const endedSeconds = 10

/**
 * A quarter of the table is for open connections of sandboxes, an eighth for closed ones. The own connections come on top: up to one
 * sandbox for every two hundred entries, the host always keeps a quarter.
 */
export function connectionBounds(tableMax: number | undefined): ConnectionBounds {
  const size = tableMax === undefined || tableMax === 0 ? tableDefault : tableMax
  const part = (divisor: number) => Math.max(1, Math.floor(size / divisor))
  const perGroup = part(4 * connectionGroups)
  const perSecond = part(8 * endedSeconds)
  return {
    // One sandbox leaves half to the others of its group, and only 31 together can take all there is.
    perSandbox: Math.min(sandboxConnectionsMax, part(8 * connectionGroups)),
    perSandboxPerSecond: Math.max(1, Math.floor(perSecond / connectionGroups)),
    perGroup,
    perSecond,
  }
}

export interface RulesOptions {
  table: string
  /** The prefix of all link names of sandboxes. */
  linkPrefix: string
  subnet: Subnet
  gatewayPort: number
  /** Where the host serves `metadataAddress`. */
  metadataPort: number
  /** Where the process that holds egress rules takes connections, and questions for names. */
  egressPort: number
  egressDnsPort: number
  bounds: ConnectionBounds
  /** Whose connections go to that process. */
  egress: EgressStates
}

/**
 * The rule set as one `nft -f` transaction; loading it again replaces it. It does not change when a sandbox starts or ends: the
 * route to each sandbox decides which source address a link may use. Only sandboxes with egress rules come into sets (`egress.ts`).
 *
 * The rules decide before the host's own address translation (`raw`), so that a port which the host forwards to a container of its own is
 * not a way around, and once more after it (`forward`). From outside nothing gets in: answers are translated back only after `raw`, so
 * `raw` drops any packet from outside to a sandbox, or to the gateway's own services, as it is no answer.
 *
 * Sandboxes reach the metadata service by its own address alone, which is translated for them: `raw` comes before the translation and
 * drops packets to the service's port on the host; `input` comes after it.
 *
 * `bounded` decides on the first packet of each connection. The own connections of a sandbox pass; further ones take from what all
 * sandboxes share. Ended connections leave the count before they leave the table, so their rate is bounded.
 */
export function rulesFile(options: RulesOptions): string {
  const { table, linkPrefix, subnet, gatewayPort, metadataPort, egressPort, egressDnsPort, bounds, egress } = options
  const links = `"${linkPrefix}*"`
  const fromSandbox = `iifname ${links}`
  const questions = `{ 53, ${egressDnsPort} }`
  const clamp = 'tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu'
  const counts = (name: string) => `set ${name} {
    type ipv4_addr
    size ${subnet.slots}
    flags dynamic
  }`
  const rates = (name: string, timeout: string) => `set ${name} {
    type ipv4_addr
    size ${subnet.slots}
    flags dynamic,timeout
    timeout ${timeout}
  }`
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
  ${filledSets(egress, subnet.slots)}
  ct timeout brief {
    protocol tcp
    l3proto ip
    policy = { established : ${idleSeconds}, time_wait : ${endedSeconds}, close : ${endedSeconds} }
  }
  ct timeout question {
    protocol udp
    l3proto ip
    policy = { unreplied : ${endedSeconds}, replied : ${endedSeconds} }
  }
  chain raw {
    type filter hook prerouting priority raw; policy accept;
    ${fromSandbox} jump from_sandbox
    iifname != "lo" iifname != ${links} ip daddr ${subnet.cidr} drop
  }
  chain from_sandbox {
    meta nfproto != ipv4 drop
    ip saddr != ${subnet.cidr} drop
    fib saddr . iif oif missing drop
    ip saddr @proxied jump proxied_from
    ip daddr ${subnet.gatewayAddress} jump to_host
    ip daddr ${metadataAddress} tcp dport 80 accept
    ip daddr @denied drop
    fib daddr type != unicast drop
  }
  chain destination {
    type nat hook prerouting priority dstnat - 10; policy accept;
    ${fromSandbox} ip daddr ${metadataAddress} tcp dport 80 dnat ip to ${subnet.gatewayAddress}:${metadataPort}
    ${fromSandbox} ip saddr @proxied jump proxied_to
  }
  chain to_host {
    udp dport 53 accept
    tcp dport { 53, ${gatewayPort} } accept
    drop
  }
  ${limitMaps}
  ${counts('connections')}
  ${counts('own_connections')}
  ${counts('gateway_connections')}
  ${counts('metadata_connections')}
  ${counts('dns_connections')}
  set group_connections {
    type ipv4_addr
    size ${connectionGroups}
    flags dynamic
  }
  ${rates('new_connections', '5m')}
  ${rates('own_new_connections', '5m')}
  ${rates('metadata_new_connections', '30s')}
  ${rates('metadata_bytes', '30s')}
  ${rates('dns_queries', '30s')}
  chain input {
    type filter hook input priority filter - 10; policy accept;
    ${fromSandbox} ct state new udp dport ${questions} ct timeout set "question"
    ${fromSandbox} ct state new jump bounded
    ${fromSandbox} tcp dport ${gatewayPort} jump bounded_gateway
    ${fromSandbox} udp dport ${questions} jump bounded_dns
    ${fromSandbox} tcp dport ${questions} ct state new jump bounded_dns
    ${fromSandbox} ip daddr != ${subnet.gatewayAddress} drop
    ${fromSandbox} tcp dport ${metadataPort} jump bounded_metadata
    ${fromSandbox} ip saddr @proxied jump proxied_input
    ${fromSandbox} meta l4proto { tcp, udp } th dport { ${egressPort}, ${egressDnsPort} } jump refused_to_host
    ${fromSandbox} jump to_host
  }
  chain output {
    type filter hook output priority filter - 10; policy accept;
    oifname ${links} tcp sport ${egressPort} ${limitRule('in')}
  }
  chain forward {
    type filter hook forward priority filter - 10; policy accept;
    ${fromSandbox} ${clamp}
    oifname ${links} ${clamp}
    ${fromSandbox} jump forward_out
    oifname ${links} jump forward_in
  }
  chain bounded {
    meta l4proto tcp ct timeout set "brief"
    update @new_connections { ip saddr limit rate over ${bounds.perSandboxPerSecond}/second burst ${2 * bounds.perSandbox} packets } drop
    add @connections { ip saddr ct count over ${bounds.perSandbox} } drop
    update @own_new_connections { ip saddr limit rate over ${ownConnectionsPerSecond}/second burst ${ownConnectionsBurst} packets } goto shared
    add @own_connections { ip saddr ct count over ${ownConnections} } goto shared
  }
  chain shared {
    limit rate over ${bounds.perSecond}/second burst ${bounds.perSecond} packets drop
    add @group_connections { ip saddr & 0.0.0.${connectionGroups - 1} ct count over ${bounds.perGroup} } drop
  }
  chain bounded_gateway {
    ct state new add @gateway_connections { ip saddr ct count over ${gatewayConnectionsPerSandbox} } drop
  }
  chain bounded_metadata {
    update @metadata_bytes { ip saddr limit rate over ${metadataKilobytesPerSecond} kbytes/second burst ${metadataKilobytesBurst} kbytes } drop
    ct state new update @metadata_new_connections { ip saddr limit rate over ${metadataConnectionsPerSecond}/second burst ${metadataConnectionsBurst} packets } drop
    ct state new add @metadata_connections { ip saddr ct count over ${metadataConnectionsPerSandbox} } drop
    ct original ip daddr ${metadataAddress} accept
  }
  chain bounded_dns {
    update @dns_queries { ip saddr limit rate over ${dnsQueriesPerSecond}/second burst ${dnsQueriesBurst} packets } drop
    meta l4proto tcp add @dns_connections { ip saddr ct count over ${dnsConnectionsPerSandbox} } drop
  }
  chain forward_out {
    meta nfproto != ipv4 drop
    ip saddr @proxied jump proxied_out
    oifname ${links} drop
    ip daddr @denied drop
    ${limitRule('out')}
    ct state new jump bounded
  }
  chain forward_in {
    ip daddr @proxied jump proxied_in
    ${limitRule('in')}
    ct state established,related accept
    drop
  }
  ${egressChains({ subnet, gatewayPort, egressPort, egressDnsPort })}
  chain postrouting {
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr ${subnet.cidr} oifname != ${links} masquerade
  }
}
`
}
