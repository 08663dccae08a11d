import { isIP } from 'node:net'
import type { PreviewService, PreviewTarget } from '../sandbox/index.ts'

const hostnameLengthMax = 253
const labelPattern = /^(?!-)[a-z0-9_-]{1,63}(?<!-)$/

/**
 * The host name of a `Host` header, in lower case, without port and final dot. Undefined for anything else and for IP addresses,
 * which no preview has. (RFC 9110 § 7.2, RFC 1123 § 2.1)
 */
export function readHost(header: string | undefined): string | undefined {
  const [, name = ''] = /^([^:]{1,254})(?::\d{1,5})?$/.exec(header ?? '') ?? []
  const hostname = name.toLowerCase().replace(/\.$/, '')
  if (hostname === '' || hostname.length > hostnameLengthMax || isIP(hostname) !== 0) return undefined
  return hostname.split('.').every((label) => labelPattern.test(label)) ? hostname : undefined
}

/** Whether a host name is a subdomain of the preview host. */
export function isUnder(hostname: string, previewHost: string): boolean {
  return hostname.endsWith(`.${previewHost}`)
}

interface PreviewHostsOptions {
  previews: Pick<PreviewService, 'resolve'>
  /** Host of the previews, such as `preview.localhost`. */
  previewHost: string
  /** Host names of the API; none of them is a preview. */
  apiHosts: readonly string[]
}

/** Maps host names to previews. Only this class decides which address is a preview. */
export class PreviewHosts {
  readonly #options: PreviewHostsOptions

  constructor(options: PreviewHostsOptions) {
    this.#options = options
  }

  /** Whether requests with this `Host` go to the proxy and not to the API. Asks the database only for names outside `previewHost`. */
  claims(header: string | undefined): boolean | Promise<boolean> {
    const { previewHost, apiHosts } = this.#options
    const hostname = readHost(header)
    // A malformed name that ends with the preview host must not reach the API.
    if (hostname === undefined) return (header ?? '').toLowerCase().replace(/:\d*$/, '').endsWith(`.${previewHost}`)
    if (isUnder(hostname, previewHost)) return true
    // A name without a dot is local to this machine or network, so it is no custom domain.
    if (apiHosts.includes(hostname) || hostname === previewHost || !hostname.includes('.')) return false
    return this.find(hostname).then((target) => target !== undefined)
  }

  /** The preview with this host name: a port of a sandbox, under `previewHost` or by a verified custom domain. */
  async find(hostname: string | undefined): Promise<PreviewTarget | undefined> {
    return hostname === undefined ? undefined : await this.#options.previews.resolve(hostname)
  }
}
