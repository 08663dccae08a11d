import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'

/** The addresses of this machine's interfaces, and those at which something listens over UDP, each with its prefix length. */
export function addressesOfHost(): string[] {
  const text = execFileSync('ip', ['-4', '-oneline', 'address'], { encoding: 'utf8' })
  const own = Array.from(text.matchAll(/ inet (\S+)/g), ([, address = '']) => address)
  // proc_net_udp(5): the address in the order of the processor's bytes, as hexadecimal digits.
  const sockets = readFileSync('/proc/net/udp', 'utf8').matchAll(/^ *\d+: ([0-9A-F]{8}):/gm)
  const bound = Array.from(sockets, ([, digits = '']) => [...Buffer.from(digits, 'hex').reverse()].join('.'))
  return [...own, ...bound.filter((address) => address !== '0.0.0.0').map((address) => `${address}/32`)]
}
