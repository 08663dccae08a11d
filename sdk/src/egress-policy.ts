import type { operations } from './api.ts'
import { InvalidRequestError } from './errors.ts'
import type { EgressPolicyInfo } from './types.ts'

type CreateBody = NonNullable<operations['createSandbox']['requestBody']>['content']['application/json']
type PolicyBody = NonNullable<operations['setEgress']['requestBody']>['content']['application/json']
type RuleBody = NonNullable<PolicyBody['allow']>[number]
/** What is left out may be `undefined` too. */
type Fields<Body> = { [Name in keyof Body]: Body[Name] | undefined }

/**
 * A destination: a host name, `*.name` for all below it, `*`, an IPv4 address or block, each with `:port` or `:from-to` if wanted; or an
 * object, which may bound methods and paths too.
 */
export type EgressRule = string | Fields<Exclude<RuleBody, string>>

/** What a sandbox may reach. */
export interface EgressPolicy {
  /** `none`: nothing; `list`: what `allow` names; `all`: everything. Default `list` with `allow`, else `all`. */
  mode?: PolicyBody['mode'] | undefined
  allow?: readonly EgressRule[] | undefined
  /** What it may not reach, whatever `allow` says. */
  deny?: readonly EgressRule[] | undefined
  /** Refusals are recorded as `would_deny`, and pass. */
  logOnly?: boolean | undefined
}

/** A secret of one creation. Its value is never shown again. */
export type InlineSecret = Fields<NonNullable<CreateBody['secrets']>[string]>

/** What a sandbox may reach and which secrets it uses, in creations and starts from checkpoints. */
export interface EgressOptions {
  /** Name of a secret store, whose secrets it uses. */
  secretStore?: string | undefined
  /** Secrets for this sandbox and its forks, by the name of the variable in which programs find a placeholder. */
  secrets?: Record<string, InlineSecret> | undefined
  /** Default: everything public, or what a checkpoint says. */
  egress?: EgressPolicy | undefined
  /** Hosts that it may reach, with those of its secret stores. Unlike `egress` they stay as they are. Default: no restriction. */
  egressAllowlist?: readonly string[] | undefined
  /** Hosts to which a secret is sent, by its name, in place of those of its store. */
  secretAllowedHosts?: Record<string, readonly string[]> | undefined
}

/** A policy that was read, as it is written. */
export function policyOf({ mode, allow, deny, logOnly }: EgressPolicyInfo): EgressPolicy {
  return { mode, allow: allow.map(ruleOf), deny: deny.map(ruleOf), logOnly }
}

/** The policy with rules that let pass; the same rules deny no more. Throws `InvalidRequestError` where all passes that is not denied. */
export function withAllowed(known: EgressPolicyInfo | null, rules: readonly EgressRule[]): EgressPolicy {
  const policy = known === null ? {} : policyOf(known)
  const deny = without(policy.deny, rules)
  if (known !== null && known.mode !== 'all')
    return { ...policy, mode: 'list', allow: [...without(policy.allow, rules), ...rules], deny }
  if (deny.length === (policy.deny?.length ?? 0))
    throw new InvalidRequestError(
      'the policy of the sandbox lets everything pass that it does not deny, so there is nothing to allow: ' +
        'a policy of the mode list confines it. What its organisation, image and secret stores refuse is theirs to allow',
    )
  return { ...policy, deny }
}

/** The policy with rules that deny; the same rules allow no more. */
export function withDenied(known: EgressPolicyInfo | null, rules: readonly EgressRule[]): EgressPolicy {
  const policy = known === null ? { mode: 'all' as const } : policyOf(known)
  return { ...policy, allow: without(policy.allow, rules), deny: [...without(policy.deny, rules), ...rules] }
}

function without(list: readonly EgressRule[] = [], rules: readonly EgressRule[]): EgressRule[] {
  const keys = new Set(rules.map(keyOf))
  return list.filter((rule) => !keys.has(keyOf(rule)))
}

type ShownRule = EgressPolicyInfo['allow'][number]

function ruleOf({ ports, ...rule }: ShownRule): EgressRule {
  return ports === undefined ? rule : { ...rule, ports: ports.map(([from, to]) => portsText(from, to)) }
}

function portsText(from: number, to: number): number | string {
  return from === to ? from : `${from}-${to}`
}

/** Equal for rules that mean the same, in whatever form. A name with other letters than those of ASCII is known as it was read alone. */
function keyOf(rule: EgressRule): string {
  const { host, cidr, ports = [], methods = [], paths = [], inspect = false } = fieldsOf(rule)
  return JSON.stringify([
    host?.toLowerCase().replace(/\.$/, ''),
    cidr?.includes('/') ? cidr : cidr && `${cidr}/32`,
    ports.map((port) => String(port).replace(/^(\d+)-\1$/, '$1')).toSorted(),
    methods.map((method) => method.toUpperCase()).toSorted(),
    paths.toSorted(),
    inspect,
  ])
}

function fieldsOf(rule: EgressRule): Exclude<EgressRule, string> {
  if (typeof rule !== 'string') return rule
  const [, destination = '', port] = /^(.*?)(?::(\d+(?:-\d+)?))?$/s.exec(rule.trim()) ?? []
  const isAddress = /^\d+(\.\d+){3}(\/\d+)?$/.test(destination)
  return {
    ...(isAddress ? { cidr: destination } : { host: destination }),
    ...(port === undefined ? {} : { ports: [port] }),
  }
}
