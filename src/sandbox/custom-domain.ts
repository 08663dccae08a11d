import { createHmac } from 'node:crypto'
import { demand } from './input.ts'

/** The TXT record that proves a domain. */
export interface VerificationRecord {
  name: string
  value: string
}

const recordLabel = '_atoll'
const hostnameLengthMax = 253 - `${recordLabel}.`.length
const hostnamePattern = /^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?$/
/** Names that lead nowhere on the internet, but perhaps to something on the operator's own network. */
const reservedPattern = /\.(?:internal|local|localhost|localdomain|lan|home|corp|arpa)$/

/**
 * The host name of a domain as a client writes it, in lower case and without a final dot. Throws `invalid_request` for what is
 * no host name, leads to a private network, or is one of `ownHosts` or lies under it.
 */
export function readCustomHostname(domain: string, ownHosts: readonly string[]): string {
  const hostname = domain.toLowerCase().replace(/\.$/, '')
  demand(hostname.length <= hostnameLengthMax, 'domain', `must be at most ${hostnameLengthMax} characters`)
  demand(hostnamePattern.test(hostname), 'domain', 'must be a host name such as app.example.com')
  demand(!reservedPattern.test(hostname), 'domain', 'must not be a name of a private network')
  for (const own of ownHosts) {
    demand(hostname !== own && !hostname.endsWith(`.${own}`), 'domain', `must not be ${own} or lie under it`)
  }
  return hostname
}

/**
 * The record by which an organisation shows that a domain is its own. Others have another value, so that a domain which one gives
 * up is not another's; the same organisation finds its record where it is, whatever preview has the domain.
 */
export function verificationRecord(secret: string, orgId: string, hostname: string): VerificationRecord {
  const proof = createHmac('sha256', secret).update(`custom domain\0${orgId}\n${hostname}`).digest('hex')
  return { name: `${recordLabel}.${hostname}`, value: `atoll-verification=${proof}` }
}
