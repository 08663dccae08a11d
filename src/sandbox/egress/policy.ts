import { isIP } from 'node:net'
import { ServiceError } from '../../errors.ts'
import { hostPattern } from '../../lib/host-pattern.ts'
import type { EgressLayer, EgressRule } from '../ports/egress.ts'

/** What a client says of one destination. A text is a host name, `*.name`, `*`, an address or a block, with `:port` if wanted. */
export type RuleInput = string | RuleFields

export interface RuleFields {
  host?: string | undefined
  cidr?: string | undefined
  /** Numbers, or ranges such as `8000-8010`. */
  ports?: (number | string)[] | undefined
  methods?: string[] | undefined
  /** Begin with `/`; `*` is any run of characters. */
  paths?: string[] | undefined
  /** TLS to it ends at the host of the sandbox, so that the host name of each request is seen. */
  inspect?: boolean | undefined
}

export interface PolicyInput {
  /** Default: `list` with an allow rule, else `all`. */
  mode?: EgressLayer['mode'] | undefined
  allow?: RuleInput[] | undefined
  deny?: RuleInput[] | undefined
  /** Refusals are recorded and let pass. */
  logOnly?: boolean | undefined
}

export type PolicyRule = Omit<EgressRule, 'id'>

/** A policy that was checked; every rule is in the form in which it is compared. */
export interface EgressPolicy {
  mode: EgressLayer['mode']
  allow: PolicyRule[]
  deny: PolicyRule[]
  logOnly: boolean
}

/** Rules of one list. A thousand rules of one sandbox are checked for each request. */
export const rulesMax = 1000
const listMax = 64
const pathCharactersMax = 1024
const methodPattern = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}$/

/** Checks a policy and brings it to its normal form. Throws `invalid_request` with the field, such as `egress.allow[3].ports`. */
export function readPolicy(input: PolicyInput, field: string): EgressPolicy {
  const allow = readRules(input.allow ?? [], `${field}.allow`)
  const deny = readRules(input.deny ?? [], `${field}.deny`)
  const mode = input.mode ?? (allow.length > 0 ? 'list' : 'all')
  if (mode !== 'list' && allow.length > 0)
    throw invalid(`${field}.allow`, `has a meaning for the mode list alone, not for ${mode}`)
  return { mode, allow, deny, logOnly: input.logOnly ?? false }
}

/** Hosts of a list, as stores and `egressAllowlist` have them. */
export function hostRules(hosts: readonly string[], field: string): PolicyRule[] {
  return hosts.map((host, index) => ({ host: readHost(host, `${field}[${index}]`) }))
}

/** A layer of a plan. `id` of a rule tells where it stands. */
export function layerOf(source: EgressLayer['source'], policy: EgressPolicy): EgressLayer {
  const named = (rules: readonly PolicyRule[], list: string) =>
    rules.map((rule, index): EgressRule => ({ id: `${source}.${list}[${index}]`, ...rule }))
  return {
    source,
    mode: policy.mode,
    log_only: policy.logOnly,
    allow: named(policy.allow, 'allow'),
    deny: named(policy.deny, 'deny'),
  }
}

/** Whether a layer refuses, or records, anything at all. */
export function restricts({ mode, deny }: { mode: EgressLayer['mode']; deny: readonly PolicyRule[] }): boolean {
  return mode !== 'all' || deny.length > 0
}

function readRules(inputs: readonly RuleInput[], field: string): PolicyRule[] {
  if (inputs.length > rulesMax) throw invalid(field, `must have at most ${rulesMax} rules`)
  return inputs.map((input, index) => {
    const where = `${field}[${index}]`
    return typeof input === 'string' ? readText(input, where) : readFields(input, where)
  })
}

function readText(text: string, field: string): PolicyRule {
  const [, destination = '', port] = /^(.*?)(?::(\d{1,5}(?:-\d{1,5})?))?$/s.exec(text.trim()) ?? []
  const ports = port === undefined ? {} : { ports: [readPorts(port, field)] }
  const isAddress = isIP(destination.split('/', 1)[0] ?? '') === 4
  return { ...(isAddress ? { cidr: readBlock(destination, field) } : { host: readHost(destination, field) }), ...ports }
}

function readFields(input: RuleFields, field: string): PolicyRule {
  const { host, cidr, ports, methods, paths, inspect } = input
  if ((host === undefined) === (cidr === undefined)) throw invalid(field, 'must have either host or cidr')
  for (const [name, list] of Object.entries({ ports, methods, paths })) {
    const fits = list === undefined || (list.length > 0 && list.length <= listMax)
    if (!fits) throw invalid(`${field}.${name}`, `must have 1 to ${listMax} entries, or be left out for all`)
  }
  const rule: PolicyRule =
    host === undefined ? { cidr: readBlock(cidr ?? '', `${field}.cidr`) } : { host: readHost(host, `${field}.host`) }
  if (ports !== undefined) rule.ports = ports.map((port, index) => readPorts(String(port), `${field}.ports[${index}]`))
  if (methods !== undefined)
    rule.methods = methods.map((method, index) => readMethod(method, `${field}.methods[${index}]`))
  if (paths !== undefined) rule.paths = paths.map((path, index) => readPath(path, `${field}.paths[${index}]`))
  if (inspect === true) rule.inspect = true
  return rule
}

/** In the form in which it is compared. An address is a `cidr`. */
export function readHost(text: string, field: string): string {
  const host = hostPattern(text)
  if (host === undefined) throw notHost(text, field)
  return host
}

function notHost(text: string, field: string): ServiceError {
  const shown = JSON.stringify(text.slice(0, 260))
  return invalid(field, `must be a host name, "*.name" or "*", without a scheme or a path: ${shown}`)
}

function readBlock(text: string, field: string): string {
  const [address = '', bits = '32', ...rest] = text.split('/')
  const isBlock = isIP(address) === 4 && rest.length === 0 && /^\d{1,2}$/.test(bits) && Number(bits) <= 32
  if (!isBlock)
    throw invalid(
      field,
      `must be an IPv4 address or block, such as 198.51.100.0/24: ${JSON.stringify(text.slice(0, 60))}`,
    )
  return `${address}/${Number(bits)}`
}

function readPorts(text: string, field: string): [number, number] {
  const [, from = '', to = from] = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(text) ?? []
  const [first, last] = [Number(from), Number(to)]
  if (!(first >= 1 && first <= last && last <= 65_535))
    throw invalid(
      field,
      `must be a port from 1 to 65535, or a range such as 8000-8010: ${JSON.stringify(text.slice(0, 20))}`,
    )
  return [first, last]
}

function readMethod(text: string, field: string): string {
  if (!methodPattern.test(text)) throw invalid(field, 'must be an HTTP method')
  return text.toUpperCase()
}

function readPath(text: string, field: string): string {
  const fits = text.startsWith('/') && text.length <= pathCharactersMax && !/[\s?#]/.test(text)
  if (!fits)
    throw invalid(field, `must begin with "/", without query, and have at most ${pathCharactersMax} characters`)
  return text
}

function invalid(field: string, rule: string): ServiceError {
  return new ServiceError('invalid_request', `${field} ${rule}`, { details: { field } })
}
