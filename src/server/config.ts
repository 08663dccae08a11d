import { isIP } from 'node:net'
import { hostname } from 'node:os'
import { z } from 'zod'
import { defined } from '../lib/defined.ts'
import { allowing } from '../gateway/index.ts'
import { ociRuntimes, type OciRuntimeName } from '../runtime/index.ts'
import { Subnet } from '../runtime/network/index.ts'
import { defaultWarmPoolSize } from '../runtime/warm-pool-size.ts'
import { defaultSandboxLimits, userPattern } from '../sandbox/index.ts'
import { readKeys } from '../secret/index.ts'
import { readTargets } from '../webhook/index.ts'
import { readLimits } from './limits.ts'
import { readUsagePrices } from './usage-prices.ts'
import { readRegistries } from './registries.ts'
import { readSandboxDefaults } from './sandbox-defaults.ts'
import { modelPattern, readModels, readPrices } from './models.ts'

/** A variable that is set to nothing counts as unset. */
const unlessEmpty = <Schema extends z.ZodType>(schema: Schema) =>
  z.preprocess((value) => (value === '' ? undefined : value), schema)
const text = unlessEmpty(z.string().optional())
const secret = (charactersMin: number) =>
  unlessEmpty(z.string().min(charactersMin, `must be at least ${charactersMin} characters`).optional())
const absolutePath = z.string().startsWith('/', 'must be an absolute path')
const folder = (fallback: string) => unlessEmpty(absolutePath.default(fallback))
const matching = (pattern: RegExp, rule: string, fallback: string) =>
  unlessEmpty(z.string().regex(pattern, rule).default(fallback))
const wholeNumber = (fallback: number, lowest = 0) => unlessEmpty(z.coerce.number().int().min(lowest).default(fallback))
const optionalUpTo = (highest: number) => {
  const rule = `must be a whole number from 0 to ${highest}`
  const number = z
    .string()
    .regex(/^\d{1,9}$/, rule)
    .transform(Number)
  return unlessEmpty(number.refine((value) => value <= highest, rule).optional())
}
const httpUrl = z.url({ protocol: /^https?$/ })
const parsed = <Value>(read: (given: string) => Value | undefined, rule: string, fallback: string) =>
  unlessEmpty(
    z
      .string()
      .default(fallback)
      .transform((value, context) => read(value) ?? refuse(context, rule)),
  )

function parsedKeys() {
  return z.string().transform((given, context) => readKeys(given.split(',')) ?? refuse(context, secretsKeyRule))
}

const listenPattern = /^(?:\[([0-9a-fA-F:]+)\]|([^:[\]]+)):(\d{1,5})$/
const hostListPattern = /^[a-z0-9.-]+(\s*,\s*[a-z0-9.-]+)*$/i
// An invalid URL has an issue already.
const isPreviewUrl = (url: string) => !URL.canParse(url) || new URL(url).hostname.startsWith('preview.')
const modelRule = 'must be "demo" or provider/model with provider anthropic or openai'
const dnsServersRule =
  'must be at most 3 IP addresses with commas between, each with or without a port (IPv6 in brackets then)'
const secretsKeyRule = 'must be keys of 32 bytes each, in hex or base64, with commas between'
const webhookTargetsRule = 'must be addresses, CIDR blocks, hosts and host:port with commas between'
const trustProxyRule = 'must be "true", "false", or addresses, CIDR blocks and "loopback" with commas between'

/** One key per environment variable; docs/operate/operations.md explains each. Every variable has a default when unset or empty. */
export const environment = z.object({
  ATOLL_LISTEN: matching(listenPattern, 'must be host:port', '127.0.0.1:4100'),
  ATOLL_DATA_DIR: folder('/var/lib/atoll'),
  ATOLL_IMAGE_DIR: folder('/var/lib/atoll/images'),
  ATOLL_API_KEY: secret(16),
  ATOLL_OPERATOR_KEY: secret(16),
  ATOLL_USAGE_PRICES: text,
  ATOLL_WEBHOOK_TARGETS: unlessEmpty(
    z
      .string()
      .refine((value) => readTargets(value) !== undefined, webhookTargetsRule)
      .default(''),
  ),
  ATOLL_PUBLIC_URL: unlessEmpty(httpUrl.optional()),
  ATOLL_API_HOSTS: unlessEmpty(z.string().regex(hostListPattern, 'must be host names with commas between').default('')),
  ATOLL_PREVIEW_URL: unlessEmpty(
    httpUrl.refine(isPreviewUrl, 'must have a host that begins with "preview."').optional(),
  ),
  ATOLL_DNS_SERVERS: parsed(readDnsServers, dnsServersRule, ''),
  ATOLL_TRUST_PROXY: parsed(readTrustProxy, trustProxyRule, 'false'),
  DATABASE_URL: unlessEmpty(z.url({ protocol: /^postgres(ql)?$/ }).optional()),
  ATOLL_RUNTIME: unlessEmpty(z.enum(Object.keys(ociRuntimes) as OciRuntimeName[]).default('runc')),
  ATOLL_REGION: matching(/^[a-z0-9-]{1,32}$/, 'must be a short code', 'local'),
  ATOLL_SUBNET: unlessEmpty(z.string().superRefine(checkSubnet).default('10.200.0.0/16')),
  ATOLL_EGRESS_RESOLVERS: parsed(readDnsServers, dnsServersRule, ''),
  ATOLL_EGRESS_ROOTS: unlessEmpty(absolutePath.optional()),
  ATOLL_EGRESS_PRIVATE_NETWORKS: parsed(readNetworks, 'must be IPv4 blocks with commas between', ''),
  ATOLL_EGRESS_UPSTREAM: parsed(readUpstreamProxy, 'must be http://[user:password@]host:port or socks5://…', ''),
  ATOLL_HOST_FIREWALL: unlessEmpty(z.enum(['add', 'leave']).default('add')),
  ATOLL_DEFAULT_USER: unlessEmpty(
    z.string().regex(userPattern, 'must be the name or id of a user, and a group behind a colon if wanted').optional(),
  ),
  ATOLL_SANDBOX_DEFAULTS: text,
  ATOLL_IMAGE_DEFINITIONS: unlessEmpty(absolutePath.optional()),
  ATOLL_REGISTRIES: text,
  ATOLL_DISK_POOL_MB: wholeNumber(0),
  ATOLL_LAZY_MEMORY_MB: wholeNumber(128),
  ATOLL_WARM_POOL: optionalUpTo(1000),
  ATOLL_RUNNING_SANDBOXES_MAX: wholeNumber(200, 1),
  ATOLL_REQUESTS_PER_SECOND: wholeNumber(100),
  ATOLL_LIMITS: text,
  ATOLL_SESSION_RETENTION_DAYS: wholeNumber(90),
  ATOLL_QUARANTINE_DAYS: wholeNumber(7),
  ATOLL_ALLOW_QUARANTINE: unlessEmpty(z.enum(['0', '1']).default('0')),
  ATOLL_MODEL_RETRY_SECONDS: wholeNumber(60),
  ATOLL_GATEWAY_ALLOW: text,
  ATOLL_SIGNING_SECRET: secret(32),
  ATOLL_SECRETS_KEY: unlessEmpty(parsedKeys().optional()),
  ATOLL_LOG_LEVEL: unlessEmpty(z.enum(['debug', 'info', 'warn', 'error', 'silent']).default('info')),
  ATOLL_MODEL: unlessEmpty(z.string().regex(modelPattern, modelRule).optional()),
  ATOLL_MODELS: text,
  ATOLL_SESSION_CHECKPOINTS: unlessEmpty(z.enum(['turn', 'disk', 'none']).default('turn')),
  ATOLL_PRICES: text,
  ANTHROPIC_API_KEY: text,
  ANTHROPIC_BASE_URL: unlessEmpty(httpUrl.optional()),
  OPENAI_API_KEY: text,
  OPENAI_BASE_URL: unlessEmpty(httpUrl.optional()),
})

export type Config = ReturnType<typeof readConfig>

const dayMs = 24 * 3_600_000
const anthropicModelDefault = 'anthropic/claude-sonnet-4-5'
const openaiModelDefault = 'openai/gpt-5'

/** Reads the configuration. Throws one error that lists all faults, each with its variable. */
export function readConfig(env: NodeJS.ProcessEnv) {
  const issues = environment.safeParse(env).error?.issues ?? []
  const faults = issues.map((issue) => `${issue.path.join('.')} ${issue.message}`)
  // From here on a faulty variable counts as unset, so that the faults of all others are found as well.
  const faulty = new Set(issues.map(({ path }) => path[0]))
  const given = environment.parse(Object.fromEntries(Object.entries(env).filter(([name]) => !faulty.has(name))))
  const [, ipv6, name, digits] = listenPattern.exec(given.ATOLL_LISTEN) ?? []
  const host = ipv6 ?? name ?? ''
  const port = Number(digits)
  if (port > 65_535) faults.push('ATOLL_LISTEN must have a port up to 65535')
  const anthropic = upstream(given.ANTHROPIC_BASE_URL, given.ANTHROPIC_API_KEY)
  const openai = upstream(given.OPENAI_BASE_URL, given.OPENAI_API_KEY)
  const model = given.ATOLL_MODEL ?? (anthropic ? anthropicModelDefault : openai ? openaiModelDefault : 'demo')
  const models = readModels(given.ATOLL_MODELS ?? '', model, faults)
  const prices = readPrices(given.ATOLL_PRICES ?? '{}', faults)
  for (const listed of models) {
    const variable = listed === model ? 'ATOLL_MODEL' : 'ATOLL_MODELS'
    for (const [provider, isGiven] of Object.entries({ anthropic, openai })) {
      const prefix = provider.toUpperCase()
      if (!listed.startsWith(`${provider}/`) || isGiven || faulty.has(`${prefix}_BASE_URL`)) continue
      faults.push(`${variable} ${listed} needs ${prefix}_API_KEY`)
    }
  }
  const gatewayNames = (given.ATOLL_GATEWAY_ALLOW ?? '').split(',').map((allowed) => allowed.trim())
  const gatewayAllowList = allowing(
    gatewayNames.filter((allowed) => allowed !== ''),
    (allowed, why) => faults.push(`ATOLL_GATEWAY_ALLOW ${allowed} ${why}`),
  )
  const limits = readLimits(given.ATOLL_LIMITS ?? '{}', faults)
  const { timeoutSecondsMax } = { ...defaultSandboxLimits, ...limits.sandbox }
  const sandboxDefaults = readSandboxDefaults(given.ATOLL_SANDBOX_DEFAULTS ?? '{}', timeoutSecondsMax, faults)
  const registries = readRegistries(given.ATOLL_REGISTRIES, faults)
  const usagePrices = readUsagePrices(given.ATOLL_USAGE_PRICES ?? '{}', faults)
  if (faults.length > 0) throw new ConfigError(faults)
  const ownUrl = given.ATOLL_PUBLIC_URL ?? `http://${reachable(host)}:${port}`
  const named = given.ATOLL_API_HOSTS.split(',').map((apiHost) => apiHost.trim())
  const apiHosts = [new URL(ownUrl).hostname, hostname(), ...named].filter((apiHost) => apiHost !== '')
  return {
    /** Lower case: the host of `ownUrl`, the names of this machine, and the operator's list. */
    apiHosts: [...new Set(apiHosts.map((apiHost) => apiHost.toLowerCase()))],
    listen: { host, port },
    dataDir: given.ATOLL_DATA_DIR,
    imageDir: given.ATOLL_IMAGE_DIR,
    /** `publicUrl`, else the origin of the listener on this machine. */
    ownUrl,
    previewUrl: new URL(given.ATOLL_PREVIEW_URL ?? `http://preview.localhost:${port}`),
    /** Name servers for the proofs of custom domains. Empty: those of the machine. */
    dnsServers: given.ATOLL_DNS_SERVERS,
    /** All peers, none, or addresses and CIDR blocks. */
    trustProxy: given.ATOLL_TRUST_PROXY,
    runtime: given.ATOLL_RUNTIME,
    region: given.ATOLL_REGION,
    subnet: given.ATOLL_SUBNET,
    /** Where images may come from, with credentials. */
    registries,
    /** Images of the operator that all organisations may name. */
    definitionsDir: given.ATOLL_IMAGE_DEFINITIONS ?? `${given.ATOLL_DATA_DIR}/definitions`,
    /** What holds the egress of sandboxes. */
    egress: {
      /** Empty: the name servers of the machine. */
      resolvers: given.ATOLL_EGRESS_RESOLVERS.map(withPort),
      /** Private networks that an allow rule may open. */
      privateNetworks: given.ATOLL_EGRESS_PRIVATE_NETWORKS,
      ...defined({
        /** A file of certificates that count beside those of the machine. */
        extraRootsFile: given.ATOLL_EGRESS_ROOTS,
        /** The proxy through which all of it leaves. */
        upstream: given.ATOLL_EGRESS_UPSTREAM || undefined,
      }),
    },
    leaveHostFirewall: given.ATOLL_HOST_FIREWALL === 'leave',
    /** 0: the driver chooses a size for the disk. */
    diskPoolBytes: given.ATOLL_DISK_POOL_MB * 1024 * 1024,
    /** Saved memory of at least this size is restored lazily while the sandbox runs; 0: never. */
    lazyMemoryBytesMin: given.ATOLL_LAZY_MEMORY_MB * 1024 * 1024,
    warmSandboxesMax: given.ATOLL_WARM_POOL ?? defaultWarmPoolSize().count,
    runningSandboxesMax: given.ATOLL_RUNNING_SANDBOXES_MAX,
    /** What sandboxes of clients have that ask for nothing else. */
    sandboxDefaults,
    limits,
    /** Allows a start to quarantine more than a tenth of all sandboxes and checkpoints. */
    mayQuarantineMany: given.ATOLL_ALLOW_QUARANTINE === '1',
    modelRetryMs: given.ATOLL_MODEL_RETRY_SECONDS * 1000,
    /** What requests to model APIs may hold. */
    gatewayAllowList,
    logLevel: given.ATOLL_LOG_LEVEL,
    /** Where webhooks may go beside public addresses; see `readTargets`. */
    webhookTargets: given.ATOLL_WEBHOOK_TARGETS,
    /** Seal what is stored of secrets, the first of them; empty: the keys of the data directory do. */
    secretsKeys: given.ATOLL_SECRETS_KEY ?? [],
    /** `provider/model` or `demo`. */
    model,
    /** The models of the sessions; `model` is among them. */
    models,
    /** Of what a checkpoint is taken after each turn of a session that does not say. */
    sessionCheckpoints: given.ATOLL_SESSION_CHECKPOINTS,
    /** Of what sandboxes use. */
    usagePrices,
    /** By model. The cost of a model without a price is unknown. */
    prices,
    // Absent: no limit, or for ever.
    ...defined({
      /** Per API key; a burst may be twice as large. */
      requestsPerSecond: given.ATOLL_REQUESTS_PER_SECOND || undefined,
      sessionsKeptMs: given.ATOLL_SESSION_RETENTION_DAYS * dayMs || undefined,
      quarantineKeptMs: given.ATOLL_QUARANTINE_DAYS * dayMs || undefined,
      apiKey: given.ATOLL_API_KEY,
      operatorKey: given.ATOLL_OPERATOR_KEY,
      /** User of sandboxes that ask for none. */
      defaultUser: given.ATOLL_DEFAULT_USER,
      publicUrl: given.ATOLL_PUBLIC_URL,
      databaseUrl: given.DATABASE_URL,
      signingSecret: given.ATOLL_SIGNING_SECRET,
      anthropic,
      openai,
    }),
  }
}

const dnsServersMax = 3

function readDnsServers(value: string): string[] | undefined {
  const servers = value.split(',').map((server) => server.trim())
  if (value.trim() === '') return []
  const isServer = (server: string) => {
    const [, ipv6, ipv4, port = '53'] = /^(?:\[(.+)\]|([^:]+))(?::(\d{1,5}))?$/.exec(server) ?? []
    const isAddress = isIP(server) !== 0 || isIP(ipv6 ?? '') === 6 || isIP(ipv4 ?? '') === 4
    return isAddress && Number(port) >= 1 && Number(port) <= 65_535
  }
  return servers.length <= dnsServersMax && servers.every(isServer) ? servers : undefined
}

/** `address:port` of a checked name server. */
function withPort(server: string): string {
  if (isIP(server) === 6) return `[${server}]:53`
  return isIP(server) === 4 || server.endsWith(']') ? `${server}:53` : server
}

const networksMax = 64

function readNetworks(value: string): string[] | undefined {
  if (value.trim() === '') return []
  const networks = value.split(',').map((network) => network.trim())
  const isNetwork = (network: string) => {
    const [address = '', prefix = '', ...rest] = network.split('/')
    return isIP(address) === 4 && rest.length === 0 && /^\d{1,2}$/.test(prefix) && Number(prefix) <= 32
  }
  return networks.length <= networksMax && networks.every(isNetwork) ? networks : undefined
}

/** The URL as it was given; its password is never shown. */
function readUpstreamProxy(value: string): string | undefined {
  if (value.trim() === '') return ''
  const url = URL.canParse(value) ? new URL(value) : undefined
  const isProxy =
    url !== undefined && ['http:', 'socks5:'].includes(url.protocol) && url.hostname !== '' && url.pathname.length <= 1
  return isProxy && url.search === '' && url.hash === '' ? value.trim() : undefined
}

function readTrustProxy(value: string): boolean | string[] | undefined {
  if (value === 'true' || value === 'false') return value === 'true'
  const parts = value.split(',').map((part) => part.trim())
  const isBlock = (part: string) => {
    const [address = '', prefix = '0', ...rest] = part.split('/')
    const bitsMax = isIP(address) === 6 ? 128 : 32
    return isIP(address) !== 0 && rest.length === 0 && /^\d{1,3}$/.test(prefix) && Number(prefix) <= bitsMax
  }
  if (!parts.every((part) => part === 'loopback' || isBlock(part))) return undefined
  return parts.flatMap((part) => (part === 'loopback' ? ['127.0.0.0/8', '::1'] : [part]))
}

function checkSubnet(value: string, context: z.RefinementCtx): void {
  try {
    void new Subnet(value)
  } catch (error) {
    refuse(context, (error as Error).message)
  }
}

function refuse(context: z.RefinementCtx, message: string): never {
  context.addIssue({ code: 'custom', message })
  return z.NEVER
}

export class ConfigError extends Error {
  constructor(faults: readonly string[]) {
    super(['the configuration is wrong:', ...faults.map((fault) => `  ${fault}`)].join('\n'))
    this.name = 'ConfigError'
  }
}

/** A base URL without a key counts as configured: many compatible servers need no key. */
function upstream(baseUrl: string | undefined, apiKey: string | undefined) {
  if (baseUrl === undefined && apiKey === undefined) return undefined
  return defined({ baseUrl, apiKey })
}

/** The host of a listener for a client on this machine. */
function reachable(host: string): string {
  if (host === '0.0.0.0' || host === '::') return 'localhost'
  return host.includes(':') ? `[${host}]` : host
}
