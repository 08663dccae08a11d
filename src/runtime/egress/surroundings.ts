import { isDeepStrictEqual } from 'node:util'
import { deniedNetworks, egressDnsPort, egressPort, explicitProxy, gatewayName, type Subnet } from '../network/index.ts'
import type { EgressStart } from './frames.ts'
import { hostAddresses, readResolvers, readRoots } from './host-facts.ts'
import { without } from './networks.ts'

export interface EgressSettings {
  /** Blocks among the denied networks that an allow rule may open. The subnet and the host are never among them. */
  privateNetworks?: readonly string[]
  /** The operator's proxy, such as `http://user:password@host:port` or `socks5://host:port`. */
  upstream?: string
  /** Name servers with ports. Default, also for none: those of the host. */
  resolvers?: readonly string[]
  /** PEM: certificates that count beside those of the host. */
  extraRootsFile?: string
}

const resolvFile = '/etc/resolv.conf'
/** No allow rule opens these: the host is behind them. */
const ownNetworks = ['0.0.0.0/8', '127.0.0.0/8']

/** What the process is told of the host when it starts. */
export class Surroundings {
  readonly #settings: EgressSettings
  readonly #subnet: Subnet
  readonly #log: (message: string) => void
  #told: readonly string[] | undefined

  constructor(settings: EgressSettings, subnet: Subnet, log: (message: string) => void) {
    this.#settings = settings
    this.#subnet = subnet
    this.#log = log
  }

  async startFrame(): Promise<EgressStart> {
    const { upstream, extraRootsFile, privateNetworks = [] } = this.#settings
    const { gatewayAddress, cidr } = this.#subnet
    const addresses = hostAddresses().map((address) => `${address}/32`)
    const resolvers = this.#resolvers()
    this.#told = resolvers
    return {
      op: 'start',
      listen: `${gatewayAddress}:${egressPort}`,
      dns: `${gatewayAddress}:${egressDnsPort}`,
      explicit: `${explicitProxy.address}:${explicitProxy.port}`,
      resolvers,
      roots: await readRoots([process.env['NODE_EXTRA_CA_CERTS'], extraRootsFile], this.#log),
      denied: [...deniedNetworks, cidr, ...addresses],
      private: without(privateNetworks, [...ownNetworks, cidr, ...addresses]),
      ...(upstream === undefined ? {} : { upstream }),
      own_names: { [gatewayName]: gatewayAddress },
    }
  }

  /** Whether the name servers are others than those that the process was told of. Cheap. */
  hasChanged(): boolean {
    return this.#told !== undefined && !isDeepStrictEqual(this.#told, this.#resolvers())
  }

  #resolvers(): readonly string[] {
    const { resolvers = [] } = this.#settings
    return resolvers.length > 0 ? resolvers : readResolvers(resolvFile)
  }
}
