export interface PassOptions {
  /** Eight hexadecimal digits of the data directory. */
  hash: string
  /** Of all sandboxes, such as `10.200.0.0/16`. */
  cidr: string
  /** Where the host answers sandboxes. */
  hostAddress: string
  gatewayPort: number
}

/** One accept rule, as each kind of firewall writes it. */
export interface Pass {
  hook: 'forward' | 'input'
  /** What it is known by: the hash of the data directory, and all that distinguishes one pass from another. */
  comment: string
  /** Of an nftables rule. iptables-nft, which lists the rules of its own tables, understands these expressions. */
  nftables: string
  iptables: string
}

/** All links of a data directory begin with it. */
export function linkPrefix(hash: string): string {
  return `atl${hash}`
}

/** What the comments of all data directories begin with. */
export const commentMark = 'atoll '

/** What all comments of a data directory begin with. */
export function commentPrefix(hash: string): string {
  return `${commentMark}${hash} `
}

/**
 * What sandboxes need of a firewall of the host. Atoll's own rules have decided before, so these let nothing through that those
 * drop; they are narrow all the same: links and addresses of this data directory, names and the model gateway.
 */
export function passesOf({ hash, cidr, hostAddress, gatewayPort }: PassOptions): Pass[] {
  const link = linkPrefix(hash)
  const pass = (hook: Pass['hook'], what: string, nftables: string, iptables: string): Pass => ({
    hook,
    comment: `${commentPrefix(hash)}${what}`,
    nftables,
    iptables,
  })
  const service = (protocol: 'tcp' | 'udp', port: number) =>
    pass(
      'input',
      `${protocol} ${port} of ${hostAddress}`,
      `iifname "${link}*" ip daddr ${hostAddress} ${protocol} dport ${port}`,
      `-i ${link}+ -d ${hostAddress} -p ${protocol} -m ${protocol} --dport ${port}`,
    )
  return [
    pass('forward', `from ${cidr}`, `iifname "${link}*" ip saddr ${cidr}`, `-i ${link}+ -s ${cidr}`),
    pass('forward', `to ${cidr}`, `oifname "${link}*" ip daddr ${cidr}`, `-o ${link}+ -d ${cidr}`),
    service('udp', 53),
    service('tcp', 53),
    service('tcp', gatewayPort),
  ]
}

/** Whether these are the comments of the wanted passes, each once. */
export function areExactly(passes: readonly Pass[], comments: readonly string[]): boolean {
  const wanted = passes.map(({ comment }) => comment).toSorted()
  return comments.toSorted().join('\n') === wanted.join('\n')
}
