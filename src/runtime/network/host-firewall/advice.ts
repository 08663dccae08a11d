import { run } from '../../command.ts'
import { baseChains } from './nftables.ts'

/** Firewalls, the mark of each in the packet rules, and the commands that let Atoll's links through. */
const firewalls = [
  {
    name: 'firewalld',
    mark: /^table inet firewalld\b/m,
    advice: 'firewall-cmd --permanent --zone=trusted --add-interface=atl+ && firewall-cmd --reload',
  },
  {
    name: 'ufw',
    mark: /\bufw-/,
    advice: 'ufw allow in on atl+ && ufw route allow in on atl+',
  },
  {
    name: 'Docker',
    mark: /\bDOCKER-USER\b/,
    advice: 'iptables -I DOCKER-USER -i atl+ -j ACCEPT && iptables -I DOCKER-USER -o atl+ -j ACCEPT',
  },
] as const

/**
 * The commands by which the firewall of this machine lets sandboxes through. Atoll's own table cannot overrule it: a packet that
 * one table accepts may still be dropped by another (nft(8)).
 */
export async function firewallAdvice(): Promise<string> {
  const rules = await ruleset()
  const found: string[] = firewalls
    .filter(({ mark }) => mark.test(rules))
    .map(({ name, advice }) => `${name}: ${advice}`)
  if (found.length === 0) found.push(...(await chainAdvice()))
  return found.length === 0 ? 'look for rules that drop: nft list ruleset' : found.join('; ')
}

/** For chains of unknown programs. */
async function chainAdvice(): Promise<string[]> {
  const chains = await baseChains(run).catch(() => [])
  return chains.map(({ family, table, name, hook }) => {
    const where = `${family} ${table} ${name}`
    const accept = (direction: string) => `nft insert rule ${where} ${direction} '"atl*"' accept`
    const commands = hook === 'input' ? [accept('iifname')] : [accept('iifname'), accept('oifname')]
    return `if ${where} drops: ${commands.join(' && ')}`
  })
}

/** The chains beside Atoll's own table whose rules name the links of a data directory, such as `ip filter FORWARD`. */
export async function firewallsWithRulesFor(hash: string): Promise<string[]> {
  const chains = new Set<string>()
  let table = ''
  let chain = ''
  for (const line of (await ruleset()).split('\n')) {
    table = /^table (\w+ \S+)/.exec(line)?.[1] ?? table
    chain = /^\s+chain (\S+)/.exec(line)?.[1] ?? chain
    const legacy = new RegExp(`^-A (\\w+) .*\\batl${hash}\\+`).exec(line)?.[1]
    if (legacy !== undefined) chains.add(`${legacy} of iptables-legacy`)
    if (!line.includes(`"atl${hash}*"`) || / atoll_/.test(table)) continue
    const isZone = table === 'inet firewalld' && !line.includes(`comment "atoll ${hash}`)
    chains.add(isZone ? 'a zone of firewalld' : `${table} ${chain}`)
  }
  return [...chains]
}

async function ruleset(): Promise<string> {
  const parts = [['nft', 'list', 'ruleset'] as const, ['iptables-legacy-save'] as const]
  return (await Promise.all(parts.map((argv) => run(argv).catch(() => '')))).join('\n')
}
