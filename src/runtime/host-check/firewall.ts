import { run } from '../command.ts'

/** Programs that fill the packet rules of a machine, how their rules are known, and what lets all of Atoll's bridges through. */
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
 * What to do so that a firewall of this machine lets sandboxes through. Rules of Atoll's own cannot overrule it: what one
 * table accepts, another may still drop (nft(8)).
 */
export async function firewallAdvice(): Promise<string> {
  const rules =
    (await run(['nft', 'list', 'ruleset']).catch(() => '')) + (await run(['iptables-legacy-save']).catch(() => ''))
  const found = firewalls.filter(({ mark }) => mark.test(rules))
  if (found.length === 0) return 'look for rules that drop: nft list ruleset'
  return found.map(({ name, advice }) => `${name}: ${advice}`).join('; ')
}
