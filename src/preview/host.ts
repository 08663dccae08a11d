import { isIP } from 'node:net'

const hostnameLengthMax = 253
const labelPattern = /^(?!-)[a-z0-9_-]{1,63}(?<!-)$/

/**
 * The host name of a `Host` header: lower case, without port and final dot. Undefined for what is no host name, IP addresses
 * included, since no preview has one. (RFC 9110 § 7.2, RFC 1123 § 2.1)
 */
export function readHost(header: string | undefined): string | undefined {
  const [, name = ''] = /^([^:]{1,254})(?::\d{1,5})?$/.exec(header ?? '') ?? []
  const hostname = name.toLowerCase().replace(/\.$/, '')
  if (hostname === '' || hostname.length > hostnameLengthMax || isIP(hostname) !== 0) return undefined
  return hostname.split('.').every((label) => labelPattern.test(label)) ? hostname : undefined
}

/** Whether a host name lies under the previews' own. */
export function isUnder(hostname: string, previewHost: string): boolean {
  return hostname.endsWith(`.${previewHost}`)
}
