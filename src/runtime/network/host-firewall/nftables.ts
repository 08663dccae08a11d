import { run } from '../../command.ts'
import type { Pass } from './passes.ts'
import { type Place, placementIn, type Rule, targetsOf, type Verdict } from './placement.ts'

/** A chain of the kernel's that packets to the host, or through it, pass. */
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
/** What nft takes without quotes; whatever else a chain is called, it is none of the firewalls that are known. */
const plainName = /^[A-Za-z_][\w.-]*$/
/** Atoll's own, and what firewalld lets nothing pass by while it loads its table anew. */
const leftTables = /^(atoll|firewalld)_/
/** A look is bounded, whatever others have made. */
const chainsMax = 64
const targetsMax = 32
/** Parts of a rule that ask nothing of a packet. */
const notAsking = ['counter', 'log']

/** Those of all firewalls of the host. */
export async function baseChains(): Promise<BaseChain[]> {
  const { nftables } = await listing(['list', 'chains'])
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
 * Puts the passes into a chain and removes all others of the hash from it, in one transaction; what is right stays. Returns whether
 * it has put them there.
 */
export async function fillChain(
  { family, table, name, policy }: BaseChain,
  wanted: { hash: string; passes: readonly Pass[]; place: Place },
): Promise<boolean> {
  const rules = await rulesOf(family, table, name)
  const targets = new Map<string, Rule[]>()
  // At the head it does not matter what comes after.
  const followed = wanted.place === 'head' ? [] : targetsOf(rules).slice(0, targetsMax)
  // One that has just gone, or is too long to be looked at, is one that does not decide on everything.
  for (const target of followed) targets.set(target, await rulesOf(family, table, target).catch(() => []))
  const placement = placementIn({ rules, policy, targets }, wanted)
  if (placement === undefined) return false
  const { removed, added, before } = placement
  const where = `${family} ${table} ${name}`
  const put =
    wanted.place === 'head'
      ? `insert rule ${where}`
      : before === undefined
        ? `add rule ${where}`
        : `insert rule ${where} handle ${before.handle}`
  const changes = [
    ...removed.map(({ handle }) => `delete rule ${where} handle ${handle}\n`),
    ...added.map((pass) => `${put} ${pass.nftables} counter accept comment "${pass.comment}"\n`),
  ]
  await run(['nft', '-f', '-'], { input: changes.join('') })
  return added.length > 0
}

async function rulesOf(family: string, table: string, chain: string): Promise<(Rule & { handle: number })[]> {
  const { nftables } = await listing(['--handle', 'list', 'chain', family, table, chain])
  return nftables
    .flatMap(({ rule }) => rule ?? [])
    .map(({ handle, comment = '', expr }) => ({ handle, comment, verdict: verdictOf(expr) }))
}

function verdictOf(expressions: readonly Record<string, unknown>[]): Verdict {
  const last = expressions.findLast((expression) => !isNotAsking(expression))
  if (last === undefined || expressions.some((other) => other !== last && !isNotAsking(other))) return undefined
  const { jump, goto, xt } = last as { jump?: Target; goto?: Target; xt?: Extension }
  if ('drop' in last || 'reject' in last || (xt?.type === 'target' && xt.name === 'REJECT')) return 'deny'
  if ('accept' in last || 'return' in last) return 'end'
  const target = jump ?? goto
  return target === undefined ? undefined : { chain: target.target }
}

interface Target {
  target: string
}

/** What iptables-nft has added to nftables' own language. */
interface Extension {
  type: string
  name: string
}

function isNotAsking(expression: Record<string, unknown>): boolean {
  const xt = expression['xt'] as Extension | undefined | null
  return notAsking.some((kind) => kind in expression) || (xt?.type === 'match' && xt.name === 'comment')
}

async function listing(words: string[]): Promise<Listing> {
  return JSON.parse(await run(['nft', '--json', ...words])) as Listing
}
