/** Where passes stand among the rules of others, the same for each kind of firewall. */
import { areExactly, commentMark, commentPrefix, type Pass } from './passes.ts'

/** What a rule does with every packet, if it asks nothing of it: lets none get further, sees to none further, or has a chain see. */
export type Verdict = 'deny' | 'end' | { chain: string } | undefined

export interface Rule {
  comment: string
  verdict: Verdict
}

export interface Chain<R extends Rule = Rule> {
  rules: readonly R[]
  policy: 'accept' | 'drop'
  /** The chains that its rules jump to with every packet. */
  targets: ReadonlyMap<string, readonly Rule[]>
}

/**
 * `last` is where a packet comes that no rule of others has decided on: what an operator keeps from sandboxes stays kept. At the
 * head passes go before everything.
 */
export type Place = 'head' | 'last'

export interface Placement<R extends Rule> {
  removed: readonly R[]
  added: readonly Pass[]
  /** The rule that the added ones stand before, none at the end of the chain. */
  before: R | undefined
}

/** What to change in a chain so that it holds exactly these passes of a hash, or undefined. One that lets everything through gets none. */
export function placementIn<R extends Rule>(
  { rules, policy, targets }: Chain<R>,
  { hash, passes, place }: { hash: string; passes: readonly Pass[]; place: Place },
): Placement<R> | undefined {
  const isOwn = ({ comment }: Rule) => comment.startsWith(commentPrefix(hash))
  const isAtolls = ({ comment }: Rule) => comment.startsWith(commentMark)
  const own = rules.filter(isOwn)
  const denying = denyingRule(rules, targets)
  const isShut = policy === 'drop' || (place === 'head' ? !rules.every(isAtolls) : denying !== -1)
  const added = isShut ? passes : []
  const end = denying === -1 ? rules.length : denying
  // At the head nobody disputes with others who goes first.
  const isInPlace =
    place === 'head' || (rules.findLastIndex(isOwn) < end && rules.slice(rules.findIndex(isOwn), end).every(isAtolls))
  const comments = own.map(({ comment }) => comment)
  if (areExactly(added, comments) && (added.length === 0 || isInPlace)) return undefined
  const others = rules.filter((rule) => !isOwn(rule))
  return { removed: own, added, before: place === 'head' ? others[0] : rules[end] }
}

/** The names of those chains. */
export function targetsOf(rules: readonly Rule[]): string[] {
  return [...new Set(rules.flatMap(({ verdict }) => (typeof verdict === 'object' ? verdict.chain : [])))]
}

/** The index of the rule that no packet gets past, by itself or in the chain that it jumps to. Further jumps are not followed. */
function denyingRule(rules: readonly Rule[], targets: Chain['targets'] = new Map()): number {
  const index = rules.findIndex(({ verdict }) =>
    typeof verdict === 'object' ? denyingRule(targets.get(verdict.chain) ?? []) !== -1 : verdict !== undefined,
  )
  return rules[index]?.verdict === 'end' ? -1 : index
}
