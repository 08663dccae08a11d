import type { Run } from '../../command.ts'
import { type AcceptRule, type RulePosition, placementIn, type Rule, targetsOf, type Verdict } from './accept-rules.ts'

/** A base chain on the path of packets to the host or through it. */
export interface BaseChain {
  family: 'ip' | 'inet'
  table: string
  name: string
  hook: 'forward' | 'input'
  policy: 'accept' | 'drop'
}

interface Listing {
  nftables: {
    chain?: { family: string; table: string; name: string; type?: string; hook?: string; policy?: string }
    rule?: { handle: number; comment?: string; expr: Record<string, unknown>[] }
  }[]
}

const families = ['ip', 'inet']
const hooks = ['forward', 'input']
/** A name that nft takes without quotes; chains of the known firewalls have no other. */
const plainName = /^[A-Za-z_][\w.-]*$/
/** Left alone: Atoll's own tables, and the one by which firewalld drops everything while it loads its rules. */
const leftTables = /^(atoll|firewalld)_/
/** Bounds of one look at the rules of others. */
const chainsMax = 64
const targetsMax = 32
/** Expressions without a condition. */
const unconditional = ['counter', 'log']

/** The base chains of all firewalls of the host. */
export async function baseChains(run: Run): Promise<BaseChain[]> {
  const { nftables } = await listing(run, ['list', 'chains'])
  const chains = nftables.flatMap(({ chain }) => (chain === undefined ? [] : [chain as BaseChain & { type?: string }]))
  return chains
    .filter(({ type, hook, family }) => type === 'filter' && hooks.includes(hook) && families.includes(family))
    .filter(({ table, name }) => plainName.test(table) && plainName.test(name) && !leftTables.test(table))
    .slice(0, chainsMax)
}

/** The chains that iptables-nft fills, also for Docker and ufw. */
export function isIptables({ family, table, name }: BaseChain): boolean {
  return family === 'ip' && table === 'filter' && ['FORWARD', 'INPUT'].includes(name)
}

/**
 * Puts the rules into a chain and removes all others of the hash, in one transaction; an up-to-date chain stays. Returns whether
 * it added any.
 */
export async function fillChain(
  run: Run,
  { family, table, name, policy }: BaseChain,
  wanted: { hash: string; acceptRules: readonly AcceptRule[]; position: RulePosition },
): Promise<boolean> {
  const rules = await rulesOf(run, family, table, name)
  const targets = new Map<string, Rule[]>()
  // At the head the later rules do not matter.
  const followed = wanted.position === 'head' ? [] : targetsOf(rules).slice(0, targetsMax)
  // A chain that is gone by now, or is too long to list, counts as one that does not decide on all packets.
  for (const target of followed) targets.set(target, await rulesOf(run, family, table, target).catch(() => []))
  const placement = placementIn({ rules, policy, targets }, wanted)
  if (placement === undefined) return false
  const { removed, added, before } = placement
  const where = `${family} ${table} ${name}`
  const put =
    wanted.position === 'head'
      ? `insert rule ${where}`
      : before === undefined
        ? `add rule ${where}`
        : `insert rule ${where} handle ${before.handle}`
  const changes = [
    ...removed.map(({ handle }) => `delete rule ${where} handle ${handle}\n`),
    ...added.map((acceptRule) => `${put} ${acceptRule.nftables} counter accept comment "${acceptRule.comment}"\n`),
  ]
  await run(['nft', '-f', '-'], { input: changes.join('') })
  return added.length > 0
}

async function rulesOf(run: Run, family: string, table: string, chain: string): Promise<(Rule & { handle: number })[]> {
  const { nftables } = await listing(run, ['--handle', 'list', 'chain', family, table, chain])
  return nftables
    .flatMap(({ rule }) => rule ?? [])
    .map(({ handle, comment = '', expr }) => ({ handle, comment, verdict: verdictOf(expr) }))
}

function verdictOf(expressions: readonly Record<string, unknown>[]): Verdict {
  const last = expressions.findLast((expression) => !isUnconditional(expression))
  if (last === undefined || expressions.some((other) => other !== last && !isUnconditional(other))) return undefined
  const { jump, goto, xt } = last as { jump?: Target; goto?: Target; xt?: Extension }
  if ('drop' in last || 'reject' in last || (xt?.type === 'target' && xt.name === 'REJECT')) return 'deny'
  if ('accept' in last || 'return' in last) return 'end'
  const target = jump ?? goto
  return target === undefined ? undefined : { chain: target.target }
}

interface Target {
  target: string
}

/** An expression of iptables-nft. */
interface Extension {
  type: string
  name: string
}

function isUnconditional(expression: Record<string, unknown>): boolean {
  const xt = expression['xt'] as Extension | undefined | null
  return unconditional.some((kind) => kind in expression) || (xt?.type === 'match' && xt.name === 'comment')
}

async function listing(run: Run, words: string[]): Promise<Listing> {
  return JSON.parse(await run(['nft', '--json', ...words])) as Listing
}
