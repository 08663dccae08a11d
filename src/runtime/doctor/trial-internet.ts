import { lookup } from 'node:dns/promises'
// oxlint-disable-next-line no-restricted-imports -- dials the internet, no guest
import { BlockList, connect } from 'node:net'
import { deniedNetworks } from '../network/rules.ts'

/** What setup takes packages from, and one that is there for examples. */
export const outsideNames = ['example.com', 'debian.org', 'iana.org'] as const
export const outsidePort = 443
const lookupMs = 5_000
const dialMs = 3_000

const denied = new BlockList()
for (const network of deniedNetworks) {
  const [base = '', prefix] = network.split('/')
  denied.addSubnet(base, Number(prefix))
}

/** What of the internet this machine itself has right now; a sandbox must have as much. */
export interface Internet {
  /** One that it resolves, and of which no address is denied to sandboxes. */
  name?: string
  /** One that it reaches. */
  address?: string
}

export async function hostInternet(): Promise<Internet> {
  const found = (await Promise.all(outsideNames.map(resolved))).flat()
  const reached = await Promise.all(found.map(async (host) => ((await arrives(host.address)) ? [host] : [])))
  const [first] = found
  return reached.flat()[0] ?? (first === undefined ? {} : { name: first.name })
}

/** A name of which an address lies where no sandbox may go is not told to sandboxes either, and counts as none here. */
async function resolved(name: string): Promise<Required<Internet>[]> {
  const { promise: late, resolve } = Promise.withResolvers<undefined>()
  const timer = setTimeout(() => resolve(undefined), lookupMs)
  const answer = await Promise.race([lookup(name, { family: 4, all: true }).catch(() => undefined), late])
  clearTimeout(timer)
  const [first] = answer ?? []
  if (first === undefined || answer?.some(({ address }) => denied.check(address))) return []
  return [{ name, address: first.address }]
}

/** A refused connection has arrived too. */
function arrives(host: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port: outsidePort, timeout: dialMs })
    const end = (hasArrived: boolean) => {
      socket.destroy()
      resolve(hasArrived)
    }
    socket.once('connect', () => end(true))
    socket.once('timeout', () => end(false))
    socket.once('error', (error: NodeJS.ErrnoException) => end(error.code === 'ECONNREFUSED'))
  })
}
