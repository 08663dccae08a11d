import { BlockList, isIP } from 'node:net'

/** Whether the `X-Forwarded-*` headers of a peer are believed: all peers', nobody's, or those of addresses and CIDR blocks. */
export function trust(proxies: boolean | readonly string[]): (address: string) => boolean {
  if (typeof proxies === 'boolean') return () => proxies
  const list = new BlockList()
  for (const proxy of proxies) {
    const [address = '', prefix] = proxy.split('/')
    const family = isIP(address) === 6 ? 'ipv6' : 'ipv4'
    list.addSubnet(address, prefix === undefined ? (family === 'ipv6' ? 128 : 32) : Number(prefix), family)
  }
  return (address) => {
    // A dual-stack listener shows IPv4 peers as `::ffff:1.2.3.4`.
    const plain = address.replace(/^::ffff:(?=\d+\.)/, '')
    return isIP(plain) !== 0 && list.check(plain, isIP(plain) === 6 ? 'ipv6' : 'ipv4')
  }
}
