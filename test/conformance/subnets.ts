/** Subnets for the drivers of tests, of which several run at the same time. */
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
import { Subnet } from '../../src/runtime/network/index.ts'

const sizePerThird = 16

export interface ClaimedSubnet {
  cidr: string
  release(): void
}

/** A /20 of 10.231.0.0/16 that no other driver of the tests has, until it is released or the process ends. */
export async function claimSubnet(): Promise<ClaimedSubnet> {
  const taken = addressesOfHost()
  for (let third = 0; third < 256; third += sizePerThird) {
    const cidr = `10.231.${third}.0/20`
    // A test that failed, or was killed, may have left a bridge or a name server.
    if (taken.some((address) => new Subnet(cidr).meets(address))) continue
    const claim = await listenAlone(`\0atoll-test-${cidr}`)
    if (claim !== undefined) return { cidr, release: () => void claim.close() }
  }
  throw new Error('all subnets of the tests are in use')
}

/** Those of interfaces, and those at which something listens over UDP. */
function addressesOfHost(): string[] {
  const text = execFileSync('ip', ['-4', '-oneline', 'address'], { encoding: 'utf8' })
  const own = Array.from(text.matchAll(/ inet (\S+)/g), ([, address = '']) => address)
  // proc_net_udp(5): the address in the order of the processor's bytes, as hexadecimal digits.
  const sockets = readFileSync('/proc/net/udp', 'utf8').matchAll(/^ *\d+: ([0-9A-F]{8}):/gm)
  const bound = Array.from(sockets, ([, digits = '']) => [...Buffer.from(digits, 'hex').reverse()].join('.'))
  return [...own, ...bound.filter((address) => address !== '0.0.0.0').map((address) => `${address}/32`)]
}

/** A socket with a name but without a file: one process alone can have it, and it ends with that. */
async function listenAlone(name: string): Promise<Server | undefined> {
  const server = createServer()
  server.unref()
  server.listen(name)
  try {
    await once(server, 'listening')
    return server
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE') return undefined
    throw error
  }
}
