import type { SandboxEgress } from './state.ts'

/** Where the certificate of the lineage's authority lies; `update-ca-certificates` of Debian takes what is there. */
export const certificatePath = '/usr/local/share/ca-certificates/opensandbox-proxy.crt'
/** The bundle that OpenSSL, curl, git, apt, Go and Python's `ssl` read. */
export const bundlePath = '/etc/ssl/certs/ca-certificates.crt'

const proxyUrl = 'http://169.254.169.253:3128'
/** What the proxy does not serve: the sandbox itself, the metadata service, the model gateway. */
const direct = 'localhost,127.0.0.1,::1,169.254.169.254,gateway.atoll.internal'

/** Whether a store or a list of hosts applies, or did when the sandbox was made. */
export function usesStore({ stores, inline, hosts, placeholders }: SandboxEgress): boolean {
  return stores.length > 0 || inline.length > 0 || hosts !== undefined || Object.keys(placeholders).length > 0
}

/**
 * The environment of commands where a store or a list of hosts applies. All traffic is taken without it; the proxy's address is there for programs
 * that look for it, and the certificates for those that have bundles of their own. What the client has set wins.
 */
export function environmentOf(egress: SandboxEgress | undefined): Record<string, string> {
  if (egress === undefined) return {}
  const secrets = Object.entries(egress.placeholders).map(([name, { own }]) => [name, own] as const)
  const proxies = ['HTTP_PROXY', 'HTTPS_PROXY', 'http_proxy', 'https_proxy'].map((name) => [name, proxyUrl] as const)
  const exceptions = ['NO_PROXY', 'no_proxy'].map((name) => [name, direct] as const)
  // Node adds the certificate to its own; the others replace theirs, so they get the bundle that has it too.
  const trust = [
    ['NODE_EXTRA_CA_CERTS', certificatePath],
    ['REQUESTS_CA_BUNDLE', bundlePath],
    ['SSL_CERT_FILE', bundlePath],
  ] as const
  return Object.fromEntries([
    ...(usesStore(egress) ? [...proxies, ...exceptions] : []),
    ...(egress.authorityId === undefined ? [] : trust),
    ...secrets,
  ])
}

/** What the client has set, of an environment that `environmentOf` was added to. */
export function clientEnvs(
  envs: Readonly<Record<string, string>>,
  egress: SandboxEgress | undefined,
): Record<string, string> {
  const made = environmentOf(egress)
  return Object.fromEntries(Object.entries(envs).filter(([name, value]) => made[name] !== value))
}

/** The environment of a sandbox after its egress has changed: what the change made goes or is replaced, what the client set stays. */
export function changedEnvironment(
  envs: Readonly<Record<string, string>>,
  before: SandboxEgress | undefined,
  after: SandboxEgress | undefined,
): Record<string, string> {
  return { ...environmentOf(after), ...clientEnvs(envs, before) }
}
