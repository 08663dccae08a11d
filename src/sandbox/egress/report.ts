import { defined } from '../../lib/defined.ts'
import type { EgressLayer, StatedEgress } from '../ports/egress.ts'
import type { ChainSecret, SecretChain } from '../ports/secret-source.ts'
import { hostsOf, listedHosts, namedHosts, statedEgress } from './plan.ts'
import type { EgressPolicy } from './policy.ts'
import type { SandboxEgress } from './state.ts'

/** What `GET …/egress` tells. */
export interface EgressReport {
  state: StatedEgress['state']
  policy: EgressPolicy | undefined
  layers: EgressLayer[]
  stores: string[]
  secrets: { name: string; hosts: string[]; isUsed: boolean; why?: string }[]
  unavailable?: string
}

/** What contract-platform § 2.2 answers. */
export interface AllowedHosts {
  secretStore?: string
  baseSecretStore?: string
  egressAllowlist: string[]
  perSecretAllowedHosts: Record<string, string[]>
}

export function reportOf(egress: SandboxEgress, layers: EgressLayer[], { stores, secrets }: SecretChain): EgressReport {
  const withoutValues = secrets.map((secret) => ({ ...secret, value: '' }))
  return {
    state: statedEgress(egress, layers, withoutValues, undefined).state,
    policy: egress.policy,
    layers,
    stores: stores.map(({ name }) => name),
    secrets: secrets.map((secret) => {
      const hosts = hostsOf(secret, egress, layers)
      const why = whyUnused(secret, egress, hosts)
      return { name: secret.name, hosts, isUsed: why === undefined, ...defined({ why }) }
    }),
  }
}

export function allowedHostsOf(egress: SandboxEgress, { stores, missing, secrets }: SecretChain): AllowedHosts {
  const present = egress.stores.filter((name) => !missing.includes(name))
  const [own] = egress.stores.slice(egress.inheritedStores)
  const inherited = present.filter((name) => name !== own)
  const named = secrets.map((secret) => [secret.name, namedHosts(secret, egress)] as const)
  return {
    ...defined({
      secretStore: own ?? present.at(-1),
      baseSecretStore: own === undefined ? undefined : inherited.at(-1),
    }),
    egressAllowlist: listedHosts(egress, stores),
    perSecretAllowedHosts: Object.fromEntries(named.filter(([, hosts]) => hosts.length > 0)),
  }
}

function whyUnused({ name }: ChainSecret, egress: SandboxEgress, hosts: readonly string[]): string | undefined {
  if (!Object.hasOwn(egress.placeholders, name)) return 'the sandbox has a variable of that name'
  return hosts.length === 0 ? 'it names no hosts, and the egress of the sandbox is not a list' : undefined
}
