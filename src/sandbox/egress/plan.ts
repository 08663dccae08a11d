import type { EgressAuthority, EgressLayer, EgressPlan, EgressSecret, StatedEgress } from '../ports/egress.ts'
import type { ChainSecret, SecretChain } from '../ports/secret-source.ts'
import { usesStore } from './environment.ts'
import { allOf } from './placeholders.ts'
import { type EgressPolicy, hostRules, layerOf, restricts } from './policy.ts'
import type { SandboxEgress } from './state.ts'

/** Layers of a sandbox from the outermost on: all must let a connection pass. */
export function layersOf(
  egress: SandboxEgress | undefined,
  organisation: EgressPolicy | undefined,
  stores: SecretChain['stores'],
): EgressLayer[] {
  const hosts = listedHosts(egress, stores)
  const ofStores: EgressPolicy = { mode: 'list', allow: hostRules(hosts, 'egressAllowlist'), deny: [], logOnly: false }
  return [
    ...(organisation === undefined ? [] : [layerOf('organisation', organisation)]),
    ...(egress?.imagePolicy === undefined ? [] : [layerOf('image', egress.imagePolicy)]),
    ...(hosts.length === 0 ? [] : [layerOf('store', ofStores)]),
    ...(egress?.policy === undefined ? [] : [layerOf('creation', egress.policy)]),
  ]
}

/** Hosts of the creation and of the stores, each once; none: these restrict nothing. */
export function listedHosts(egress: SandboxEgress | undefined, stores: SecretChain['stores']): string[] {
  return [...new Set([...(egress?.hosts ?? []), ...stores.flatMap(({ egressAllowlist }) => egressAllowlist)])]
}

/** Whether what leaves is a closed list: only then is a secret without hosts used. */
export function isListed(layers: readonly EgressLayer[]): boolean {
  return layers.some(({ mode, log_only }) => mode !== 'all' && !log_only)
}

/** Hosts that the creation names for a secret, else those that it names itself. */
export function namedHosts({ name, allowedHosts }: ChainSecret, egress: SandboxEgress | undefined): string[] {
  return ownOf(egress?.secretHosts, name) ?? allowedHosts
}

/** Where the value of a secret goes; empty: nowhere. */
export function hostsOf(
  secret: ChainSecret,
  egress: SandboxEgress | undefined,
  layers: readonly EgressLayer[],
): string[] {
  const hosts = namedHosts(secret, egress)
  if (hosts.length > 0) return hosts
  return isListed(layers) ? ['*'] : []
}

/** Whether TLS may have to end at the host of the sandbox, for which it needs an authority. */
export function needsAuthority(egress: SandboxEgress | undefined, layers: readonly EgressLayer[]): boolean {
  const reads = layers.some(({ allow, deny }) =>
    [...allow, ...deny].some(({ methods, paths, inspect }) => methods || paths || inspect),
  )
  return reads || Object.keys(egress?.placeholders ?? {}).length > 0
}

export function statedEgress(
  egress: SandboxEgress | undefined,
  layers: EgressLayer[],
  secrets: readonly (ChainSecret & { value: string })[],
  authority: EgressAuthority | undefined,
): StatedEgress {
  const planned = secrets.flatMap((secret): EgressSecret[] => {
    const placeholder = ownOf(egress?.placeholders, secret.name)
    const hosts = hostsOf(secret, egress, layers)
    if (placeholder === undefined || hosts.length === 0) return []
    const { name, value, places } = secret
    const sign = signing(secret, egress, secrets)
    // One that signs is never sent itself.
    if (secret.sign !== undefined && sign === undefined) return []
    return [{ name, placeholders: allOf(placeholder), value, hosts, in: places, ...(sign && { sign }) }]
  })
  const plan: EgressPlan = { layers, secrets: planned, ...(authority && { authority }) }
  const restricting = layers.filter((layer) => restricts(layer))
  // What only records lets pass what the process cannot see.
  if (restricting.some(({ log_only }) => !log_only)) return { state: 'confined', plan }
  // Programs that were told of the proxy go on using it, also when nothing is left of their secrets.
  const isNeeded = planned.length > 0 || restricting.length > 0 || (egress !== undefined && usesStore(egress))
  return isNeeded ? { state: 'proxied', plan } : { state: 'open' }
}

/** Undefined where the secret with the id of the access key is missing, or the sandbox has a variable of its name. */
function signing(
  { sign }: ChainSecret,
  egress: SandboxEgress | undefined,
  secrets: readonly (ChainSecret & { value: string })[],
): EgressSecret['sign'] {
  const id = sign && secrets.find(({ name }) => name === sign.accessKeyId)
  const placeholder = id && ownOf(egress?.placeholders, id.name)
  if (sign === undefined || id === undefined || placeholder === undefined) return undefined
  return { type: sign.type, access_key_placeholder: placeholder.own, access_key: id.value }
}

/** A secret may have a name that every object has, such as `constructor`. */
function ownOf<Value>(values: Readonly<Record<string, Value>> | undefined, name: string): Value | undefined {
  return values !== undefined && Object.hasOwn(values, name) ? values[name] : undefined
}
