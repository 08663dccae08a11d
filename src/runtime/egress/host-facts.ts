import { readFile, stat } from 'node:fs/promises'
import { isIPv4, isIPv6 } from 'node:net'
import { networkInterfaces } from 'node:os'
import { readNow } from '../read-now.ts'

const bundleFile = '/etc/ssl/certs/ca-certificates.crt'
const rootsBytesMax = 8 * 1024 * 1024
/** Name servers that are taken of a file; the C library takes three. */
const resolversMax = 8
/** Whom the C library asks when its file names nobody. */
const localResolver = '127.0.0.1:53'

/** The name servers of a file like `/etc/resolv.conf`, with ports. Reads without yielding. */
export function readResolvers(file: string): string[] {
  const found = (readNow(file) ?? '').split('\n').flatMap((line) => {
    const address = /^\s*nameserver\s+(\S+)/.exec(line)?.[1] ?? ''
    if (isIPv4(address)) return `${address}:53`
    // One with a zone is no address of a socket that another process can take from a text.
    return isIPv6(address) && !address.includes('%') ? `[${address}]:53` : []
  })
  return found.length === 0 ? [localResolver] : [...new Set(found)].slice(0, resolversMax)
}

/**
 * What upstream certificates are checked against, as PEM: the bundle of the host, and the files of others, such as those that Node.js is told of. One
 * that cannot be read is logged and left out.
 */
export async function readRoots(
  extraFiles: readonly (string | undefined)[],
  log: (message: string) => void,
): Promise<string> {
  const texts: string[] = []
  for (const file of new Set([bundleFile, ...extraFiles])) {
    if (file === undefined || file === '') continue
    try {
      if ((await stat(file)).size > rootsBytesMax) throw new Error(`it has more than ${rootsBytesMax} bytes`)
      texts.push(await readFile(file, 'utf8'))
    } catch (error) {
      log(`certificates for the egress of sandboxes are left out, those of ${file}: ${String(error)}`)
    }
  }
  return texts.join('\n')
}

/** The IPv4 addresses of this host. */
export function hostAddresses(): string[] {
  const all = Object.values(networkInterfaces()).flatMap((infos = []) => infos)
  return [...new Set(all.filter(({ family }) => family === 'IPv4').map(({ address }) => address))].toSorted()
}
