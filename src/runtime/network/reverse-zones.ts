/** IPv6 networks of this host's neighbourhood, and those that belong to nobody, by what the names of all their addresses end in. */
const privateZones6 = [
  // ::, ::1 and IPv4 addresses in the clothes of IPv6 ones
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

/** The zones of the reverse names of IPv4 networks, such as `10.in-addr.arpa`; a prefix between two dots has several. */
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
