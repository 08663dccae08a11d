import { run } from '../command.ts'

/** Programs that fill the packet rules of a machine, how their rules are known, and how they are told of a bridge. */
const firewalls = [
  {
    name: 'firewalld',
    mark: /^table inet firewalld\b/m,
    advice: 'firewall-cmd --permanent --zone=trusted --add-interface=BRIDGE && firewall-cmd --reload',
  },
  {
    name: 'ufw',
    mark: /\bufw-/,
    advice: 'ufw allow in on BRIDGE && ufw route allow in on BRIDGE',
  },
  {
    name: 'Docker',
    mark: /\bDOCKER-USER\b/,
    advice: 'iptables -I DOCKER-USER -i BRIDGE -j ACCEPT && iptables -I DOCKER-USER -o BRIDGE -j ACCEPT',
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
  const bridge = 'with the server’s bridge (ip link show type bridge) for BRIDGE'
  if (found.length === 0) return 'look for rules that drop: nft list ruleset'
  return `${found.map(({ name, advice }) => `${name}: ${advice}`).join('; ')}; ${bridge}`
}
