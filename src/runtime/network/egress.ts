/**
 * How packets of sandboxes with egress rules or secrets come to the process that holds these (docs/internals/egress.md), for `rules.ts`. Only the
 * first packet of a connection is translated. What belongs to a connection from before its sandbox got rules is therefore refused where it would
 * pass: on its way out, and at the services of the host.
 */
import type { EgressState } from '../../sandbox/ports/egress.ts'
import { limitRule } from './limits.ts'
import type { Subnet } from './subnet.ts'

/** The address of the process as an explicit proxy, for sandboxes with rules alone. The host does not have it. */
export const explicitProxy = { address: '169.254.169.253', port: 3128 } as const

/** States by the address of a sandbox. One that is `open` may be absent. */
export type EgressStates = ReadonlyMap<string, EgressState>

const setsOf: Record<EgressState, readonly string[]> = {
  open: [],
  proxied: ['proxied'],
  confined: ['proxied', 'confined'],
}
const sets = setsOf.confined

/** The one of two that lets less through. */
export function stricter(one: EgressState, other: EgressState): EgressState {
  return setsOf[one].length > setsOf[other].length ? one : other
}

/** The sets of a table, filled. */
export function filledSets(states: EgressStates, size: number): string {
  const elements = (name: string) =>
    [...states].flatMap(([address, state]) => (setsOf[state].includes(name) ? address : []))
  return sets
    .map((name) => {
      const filled = elements(name)
      return `set ${name} {
    type ipv4_addr
    size ${size}
    ${filled.length === 0 ? '' : `elements = { ${filled.join(', ')} }`}
  }`
    })
    .join('\n  ')
}

/** Lines of `nft -f` that bring one address to a state, whatever it had. `table` is the family and the name. */
export function movedTo(table: string, address: string, state: EgressState): string[] {
  return sets.flatMap((name) => {
    const change = (verb: 'add' | 'delete') => `${verb} element ${table} ${name} { ${address} }`
    // A deletion of what is not there fails, an addition of what is there does not.
    return setsOf[state].includes(name) ? [change('add')] : [change('add'), change('delete')]
  })
}

interface EgressRules {
  subnet: Subnet
  gatewayPort: number
  /** Where the process takes connections, and questions for names. */
  egressPort: number
  egressDnsPort: number
}

/**
 * The chains, by what jumps to them:
 *
 *     proxied_from       from `raw`, once the source is known to be true: what the translation will take, or refuse
 *     proxied_to         from the translation
 *     proxied_input      from `input`: translated connections, and the model gateway
 *     proxied_out, _in   from `forward`
 */
export function egressChains({ subnet, gatewayPort, egressPort, egressDnsPort }: EgressRules): string {
  const host = subnet.gatewayAddress
  const refused = 'reject with icmp type admin-prohibited'
  return `chain proxied_from {
    meta l4proto tcp fib daddr type { unicast, local } accept
    udp dport 53 ip saddr != @confined fib daddr type { unicast, local } accept
  }
  chain proxied_to {
    ip daddr ${host} tcp dport ${gatewayPort} return
    ip daddr ${host} udp dport 53 dnat ip to ${host}:${egressDnsPort}
    ip daddr ${host} tcp dport 53 dnat ip to ${host}:${egressDnsPort}
    ip saddr != @confined udp dport 53 dnat ip to ${host}:${egressDnsPort}
    ip saddr != @confined tcp dport 53 dnat ip to ${host}:${egressDnsPort}
    meta l4proto tcp dnat ip to ${host}:${egressPort}
  }
  chain proxied_input {
    tcp dport ${egressPort} ct status dnat ${limitRule('out')}
    tcp dport { ${egressPort}, ${egressDnsPort} } ct status dnat accept
    udp dport ${egressDnsPort} ct status dnat accept
    tcp dport ${gatewayPort} accept
    jump refused_to_host
  }
  chain refused_to_host {
    meta l4proto tcp reject with tcp reset
    meta l4proto udp ${refused}
    drop
  }
  chain proxied_out {
    meta l4proto tcp reject with tcp reset
    udp dport 53 ${refused}
    ip saddr @confined ${refused}
  }
  chain proxied_in {
    meta l4proto tcp reject with tcp reset
    ip daddr @confined drop
  }`
}
