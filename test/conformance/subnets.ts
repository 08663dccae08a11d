/** Subnets for the drivers of tests, of which several run at the same time. */
import { once } from 'node:events'
import { createServer, type Server } from 'node:net'
import { Subnet } from '../../src/runtime/network/index.ts'
import { addressesOfHost } from '../support/addresses.ts'

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
