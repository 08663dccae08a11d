/** The accept rules that sandboxes need in the host's firewalls, and their position among the rules of others. */
export interface AcceptRuleOptions {
  /** Eight hexadecimal digits of the data directory. */
  hash: string
  /** The subnet of all sandboxes, such as `10.200.0.0/16`. */
  cidr: string
  /** The address of the host for sandboxes. */
  hostAddress: string
  gatewayPort: number
  metadataPort: number
  egressPort: number
  egressDnsPort: number
}

/** One accept rule in the syntax of each kind of firewall. */
export interface AcceptRule {
  hook: 'forward' | 'input'
  /** Identifies the rule: the hash of the data directory, and what distinguishes it from the others. */
  comment: string
  /** The expression of an nftables rule; iptables-nft can list it in its own tables. */
  nftables: string
  iptables: string
}

/** The prefix of all link names of a data directory. */
export function linkPrefix(hash: string): string {
  return `atl${hash}`
}

/** The prefix of the comments of all data directories. */
export const commentMark = 'atoll '

/** The prefix of all comments of a data directory. */
export function commentPrefix(hash: string): string {
  return `${commentMark}${hash} `
}

/**
 * The rules that sandboxes need in a firewall of the host. Atoll's own rules decide earlier, so these accept nothing that those drop. They
 * still name only links and addresses of this data directory, DNS, the model gateway, the metadata service and the process that holds egress rules.
 */
export function acceptRulesFor({
  hash,
  cidr,
  hostAddress,
  gatewayPort,
  metadataPort,
  egressPort,
  egressDnsPort,
}: AcceptRuleOptions): AcceptRule[] {
  const link = linkPrefix(hash)
  const acceptRule = (hook: AcceptRule['hook'], what: string, nftables: string, iptables: string): AcceptRule => ({
    hook,
    comment: `${commentPrefix(hash)}${what}`,
    nftables,
    iptables,
  })
  const service = (protocol: 'tcp' | 'udp', port: number) =>
    acceptRule(
      'input',
      `${protocol} ${port} of ${hostAddress}`,
      `iifname "${link}*" ip daddr ${hostAddress} ${protocol} dport ${port}`,
      `-i ${link}+ -d ${hostAddress} -p ${protocol} -m ${protocol} --dport ${port}`,
    )
  return [
    acceptRule('forward', `from ${cidr}`, `iifname "${link}*" ip saddr ${cidr}`, `-i ${link}+ -s ${cidr}`),
    acceptRule('forward', `to ${cidr}`, `oifname "${link}*" ip daddr ${cidr}`, `-o ${link}+ -d ${cidr}`),
    service('udp', 53),
    service('tcp', 53),
    service('tcp', gatewayPort),
    service('tcp', metadataPort),
    service('tcp', egressPort),
    service('udp', egressDnsPort),
    service('tcp', egressDnsPort),
  ]
}

/** Whether these are the comments of the wanted rules, each once. */
export function areExactly(acceptRules: readonly AcceptRule[], comments: readonly string[]): boolean {
  const wanted = acceptRules.map(({ comment }) => comment).toSorted()
  return comments.toSorted().join('\n') === wanted.join('\n')
}

/** What a rule without conditions does with every packet: drop it, end the chain for it, or jump to a chain. */
export type Verdict = 'deny' | 'end' | { chain: string } | undefined

export interface Rule {
  comment: string
  verdict: Verdict
}

export interface Chain<R extends Rule = Rule> {
  rules: readonly R[]
  policy: 'accept' | 'drop'
  /** The chains to which its unconditional rules jump. */
  targets: ReadonlyMap<string, readonly Rule[]>
}

/**
 * `last` is behind all rules that decide on some packets, so that an operator's own denials hold. `head` is before all rules.
 */
export type RulePosition = 'head' | 'last'

export interface Placement<R extends Rule> {
  removed: readonly R[]
  added: readonly AcceptRule[]
  /** The rule behind the added ones, undefined at the end of the chain. */
  before: R | undefined
}

/** The change after which a chain holds exactly these rules of a hash; undefined when it does already. A chain that accepts everything gets none. */
export function placementIn<R extends Rule>(
  { rules, policy, targets }: Chain<R>,
  { hash, acceptRules, position }: { hash: string; acceptRules: readonly AcceptRule[]; position: RulePosition },
): Placement<R> | undefined {
  const isOwn = ({ comment }: Rule) => comment.startsWith(commentPrefix(hash))
  const isAtolls = ({ comment }: Rule) => comment.startsWith(commentMark)
  const own = rules.filter(isOwn)
  const denying = denyingRule(rules, targets)
  const isDropping = policy === 'drop' || (position === 'head' ? !rules.every(isAtolls) : denying !== -1)
  const added = isDropping ? acceptRules : []
  const end = denying === -1 ? rules.length : denying
  // At the head the order among rules of others does not matter.
  const isInPlace =
    position === 'head' ||
    (rules.findLastIndex(isOwn) < end && rules.slice(rules.findIndex(isOwn), end).every(isAtolls))
  const comments = own.map(({ comment }) => comment)
  if (areExactly(added, comments) && (added.length === 0 || isInPlace)) return undefined
  const others = rules.filter((rule) => !isOwn(rule))
  return { removed: own, added, before: position === 'head' ? others[0] : rules[end] }
}

/** The names of the chains to which unconditional rules jump. */
export function targetsOf(rules: readonly Rule[]): string[] {
  return [...new Set(rules.flatMap(({ verdict }) => (typeof verdict === 'object' ? verdict.chain : [])))]
}

/** The index of the rule that drops all packets, by itself or in the chain that it jumps to; further jumps are not followed. */
function denyingRule(rules: readonly Rule[], targets: Chain['targets'] = new Map()): number {
  const index = rules.findIndex(({ verdict }) =>
    typeof verdict === 'object' ? denyingRule(targets.get(verdict.chain) ?? []) !== -1 : verdict !== undefined,
  )
  return rules[index]?.verdict === 'end' ? -1 : index
}
