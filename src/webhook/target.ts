import { BlockList, isIP, isIPv4 } from 'node:net'

/**
 * Where a webhook may go. The rules are checked twice: of what the URL says, when it is registered, and of each address that its name leads to,
 * when a connection is made. Sources: the IANA registries of special-purpose addresses (RFC 6890 and its successors), RFC 6761 of names.
 */

const httpsPorts: readonly number[] = [443, 8443]

const refused = new BlockList()
for (const [network, bits] of [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  // Multicast, reserved and broadcast.
  ['224.0.0.0', 3],
] as const)
  refused.addSubnet(network, bits, 'ipv4')
// Global unicast is 2000::/3; what is outside of it is refused whole.
const unicast = new BlockList()
unicast.addSubnet('2000::', 3, 'ipv6')
for (const [network, bits] of [
  ['2001::', 23],
  ['2001:db8::', 32],
  // 6to4 wraps any IPv4 address.
  ['2002::', 16],
  ['3fff::', 20],
] as const)
  refused.addSubnet(network, bits, 'ipv6')

/** What the operator allows beside public addresses (`ATOLL_WEBHOOK_TARGETS`). */
export interface AllowedTargets {
  networks: BlockList
  /** Host names, with the port if one was named. */
  hosts: ReadonlySet<string>
}

export const noTargets: AllowedTargets = { networks: new BlockList(), hosts: new Set() }

/** Reads CIDR blocks, addresses, hosts and `host:port` with commas between. Undefined for what is none. */
export function readTargets(text: string): AllowedTargets | undefined {
  const networks = new BlockList()
  const hosts = new Set<string>()
  for (const part of text.split(',').map((one) => one.trim().toLowerCase())) {
    if (part === '') continue
    const [address = '', bits] = part.split('/')
    const family = isIP(address)
    const most = family === 4 ? 32 : 128
    if (family !== 0 && (bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= most))) {
      networks.addSubnet(address, bits === undefined ? most : Number(bits), family === 4 ? 'ipv4' : 'ipv6')
    } else if (bits === undefined && /^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:\d{1,5})?$/.test(part)) hosts.add(part)
    else return undefined
  }
  return { networks, hosts }
}

/** Why an address is not dialled; undefined for one that may be. */
export function addressFault(address: string, allowed: AllowedTargets = noTargets): string | undefined {
  const family = isIPv4(address) ? 'ipv4' : 'ipv6'
  if (isIP(address) === 0) return `${address} is no address`
  if (allowed.networks.check(address, family)) return undefined
  const embedded = family === 'ipv6' ? embeddedIpv4(address) : undefined
  if (embedded !== undefined)
    return addressFault(embedded, allowed) && `${address} stands for ${embedded}, which is not public`
  const isPublic =
    family === 'ipv4' ? !refused.check(address) : unicast.check(address, 'ipv6') && !refused.check(address, 'ipv6')
  return isPublic ? undefined : `${address} is not public`
}

/** The IPv4 address in a mapped (`::ffff:0:0/96`), compatible or NAT64 (`64:ff9b::/96`) one. */
function embeddedIpv4(address: string): string | undefined {
  // The URL parser writes each IPv6 address in one way, with the last 32 bits in hex.
  const written = URL.canParse(`http://[${address.split('%')[0]}]/`)
    ? new URL(`http://[${address.split('%')[0]}]/`).hostname
    : ''
  const [, , high = '', low = ''] =
    /^\[(::ffff:|::|64:ff9b::)(?:([0-9a-f]{1,4}):)?([0-9a-f]{1,4})\]$/.exec(written) ?? []
  if (low === '') return undefined
  const bits = [Number.parseInt(high === '' ? '0' : high, 16), Number.parseInt(low, 16)]
  return bits.flatMap((pair) => [pair >> 8, pair & 255]).join('.')
}

const localNames = /^(?:.*\.)?(?:localhost|local|internal|home\.arpa)$/
const urlLengthMax = 2048

/**
 * What is wrong with the URL of a destination; undefined for a good one. `URL` has turned each spelling of an IPv4 address (`127.1`,
 * `0x7f000001`, `2130706433`) into the usual one.
 */
export function urlFault(text: string, allowed: AllowedTargets = noTargets): string | undefined {
  if (text.length > urlLengthMax) return `must have at most ${urlLengthMax} characters`
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url?.protocol !== 'https:' && url?.protocol !== 'http:') return 'must be a URL that begins with https://'
  if (url.username !== '' || url.password !== '')
    return 'must have no user name or password: use the headers of the destination'
  if (url.hash !== '') return 'must have no fragment'
  const { host, port } = targetOf(url)
  if (isNamed(url, allowed)) return undefined
  const isAllowed = isIP(host) !== 0 && allowed.networks.check(host, isIPv4(host) ? 'ipv4' : 'ipv6')
  if (isAllowed) return undefined
  if (url.protocol === 'http:') return 'must begin with https://'
  if (!httpsPorts.includes(port)) return `must have one of the ports ${httpsPorts.join(', ')}`
  if (isIP(host) !== 0) {
    const fault = addressFault(host)
    return fault && `must lead to a public address: ${fault}`
  }
  // A name without a dot is one of the local network.
  if (localNames.test(host) || !host.includes('.')) return `must lead to a public address: ${host} is a local name`
  return undefined
}

/** The host without brackets and without the dot at its end, and the port. */
export function targetOf(url: URL): { host: string; port: number } {
  const host = url.hostname.replace(/^\[|\]$/g, '').replace(/\.$/, '')
  return { host, port: url.port === '' ? (url.protocol === 'http:' ? 80 : 443) : Number(url.port) }
}

/** Whether the operator allows the host of the URL by its name: then each address and port of it, and plain HTTP. */
export function isNamed(url: URL, { hosts }: AllowedTargets): boolean {
  const { host, port } = targetOf(url)
  return hosts.has(host) || hosts.has(`${host}:${port}`)
}
