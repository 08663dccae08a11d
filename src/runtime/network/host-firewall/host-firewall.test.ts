/** Real rule sets, each in a network namespace of its own. */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { promisify } from 'node:util'
import { legacyChanges } from './iptables-legacy.ts'
import { acceptRulesFor } from './accept-rules.ts'
import type { Seen } from '../testing/host-firewall-steps.ts'

const runFile = promisify(execFile)
const program = join(import.meta.dirname, '../testing/host-firewall-steps.ts')
const [own, other] = ['0a1b2c3d', '4e5f6071']

/** Runs the steps where `rules` are loaded already. Programs in `bin` come before others. */
async function steps(rules: string, list: string[], bin = ''): Promise<Seen> {
  const env = { ...process.env, PATH: `${bin}:${process.env['PATH']}:/usr/sbin`, RULES: rules }
  const load = `echo "$RULES" | ${await nft()} -f -; exec "$@"`
  const argv = ['--net', 'sh', '-ec', load, 'sh', process.execPath, program, ...list]
  const { stdout } = await runFile('unshare', argv, { env })
  return JSON.parse(stdout) as Seen
}

/** The rules of a chain, in their order. */
function chain(ruleset: string | undefined, table: string, name: string): string[] {
  const body = ruleset?.split(/^table /m).find((text) => text.startsWith(`${table} `))
  const lines = body?.split(new RegExp(`^\tchain ${name} \\{$`, 'm'))[1]?.split(/^\t\}$/m)[0] ?? ''
  return lines
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('type '))
}

async function folder(t: TestContext): Promise<string> {
  const made = await mkdtemp(join(tmpdir(), 'atoll-firewall-'))
  t.after(() => rm(made, { recursive: true }))
  return made
}

/** As iptables-nft writes it, with an operator's own rule. */
const docker = `
table ip filter {
  chain DOCKER {
    iifname != "docker0" oifname "docker0" counter drop
  }
  chain DOCKER-ISOLATION-STAGE-2 {
    oifname "docker0" counter drop
    counter return
  }
  chain DOCKER-ISOLATION-STAGE-1 {
    iifname "docker0" oifname != "docker0" counter jump DOCKER-ISOLATION-STAGE-2
    counter return
  }
  chain DOCKER-USER {
    ip saddr 10.200.0.0/16 ip daddr 11.0.0.0/8 counter drop
    counter return
  }
  chain FORWARD {
    type filter hook forward priority 0; policy drop;
    counter jump DOCKER-USER
    counter jump DOCKER-ISOLATION-STAGE-1
    oifname "docker0" ct state related,established counter accept
    oifname "docker0" counter jump DOCKER
    iifname "docker0" oifname != "docker0" counter accept
  }
  chain INPUT {
    type filter hook input priority 0; policy accept;
  }
}`
const dockerForward = [
  'counter jump DOCKER-USER',
  'counter jump DOCKER-ISOLATION-STAGE-1',
  'oifname "docker0" ct state established,related counter accept',
  'oifname "docker0" counter jump DOCKER',
  'iifname "docker0" oifname != "docker0" counter accept',
]

/** The rules of ufw, which deny or reject packets that no rule of the operator decides on. */
const ufw = (whatIsDenied: 'deny' | 'reject') => `
table ip filter {
  chain ufw-before-logging-forward {
  }
  chain ufw-user-forward {
    iifname "atl*" ip daddr 11.0.0.0/8 counter drop
  }
  chain ufw-before-forward {
    ct state related,established counter accept
    icmp type echo-request counter accept
    counter jump ufw-user-forward
  }
  chain ufw-after-forward {
  }
  chain ufw-after-logging-forward {
    limit rate 3/minute burst 10 packets counter log prefix "[UFW BLOCK] "
  }
  chain ufw-reject-forward {
    ${whatIsDenied === 'reject' ? 'counter reject' : ''}
  }
  chain ufw-track-forward {
  }
  chain FORWARD {
    type filter hook forward priority 0; policy drop;
    counter jump ufw-before-logging-forward
    counter jump ufw-before-forward
    counter jump ufw-after-forward
    counter jump ufw-after-logging-forward
    counter jump ufw-reject-forward
    counter jump ufw-track-forward
  }
}`
const ufwForward = ['before-logging', 'before', 'after', 'after-logging', 'reject', 'track'].map(
  (name) => `counter jump ufw-${name}-forward`,
)

const ownForward = forwardOf(own)

function forwardOf(hash: string): string[] {
  return [
    `iifname "atl${hash}*" ip saddr 10.200.0.0/16 counter accept comment "atoll ${hash} from 10.200.0.0/16"`,
    `oifname "atl${hash}*" ip daddr 10.200.0.0/16 counter accept comment "atoll ${hash} to 10.200.0.0/16"`,
  ]
}

const ownInput = [
  `iifname "atl${own}*" ip daddr 10.200.0.1 tcp dport 4183 counter accept comment "atoll ${own} tcp 4183 of 10.200.0.1"`,
  `iifname "atl${own}*" ip daddr 10.200.0.1 udp dport 4183 counter accept comment "atoll ${own} udp 4183 of 10.200.0.1"`,
  `iifname "atl${own}*" ip daddr 10.200.0.1 tcp dport 4182 counter accept comment "atoll ${own} tcp 4182 of 10.200.0.1"`,
  `iifname "atl${own}*" ip daddr 10.200.0.1 tcp dport 4181 counter accept comment "atoll ${own} tcp 4181 of 10.200.0.1"`,
  `iifname "atl${own}*" ip daddr 10.200.0.1 tcp dport 4180 counter accept comment "atoll ${own} tcp 4180 of 10.200.0.1"`,
  `iifname "atl${own}*" ip daddr 10.200.0.1 tcp dport 53 counter accept comment "atoll ${own} tcp 53 of 10.200.0.1"`,
  `iifname "atl${own}*" ip daddr 10.200.0.1 udp dport 53 counter accept comment "atoll ${own} udp 53 of 10.200.0.1"`,
]

test('host firewall: a chain that drops gets accept rules behind those of the operator, once, and one that lets everything through gets none', async () => {
  const { shown, said } = await steps(docker, [`open ${own}`, 'show', `open ${own}`, 'show'])
  for (const ruleset of shown) {
    assert.deepEqual(chain(ruleset, 'ip filter', 'FORWARD'), [...dockerForward, ...ownForward])
    assert.deepEqual(chain(ruleset, 'ip filter', 'INPUT'), [])
  }
  assert.equal(said.length, 1)
  assert.match(said[0] ?? '', new RegExp(`by rules for atl${own}\\* in ip filter FORWARD \\(`))
})

test('host firewall: behind ufw what the operator denies comes first, and what it rejects by default last', async () => {
  const [denied, rejected] = await Promise.all(
    (['deny', 'reject'] as const).map((kind) => steps(ufw(kind), [`open ${own}`, 'show', `open ${own}`, 'show'])),
  )
  for (const ruleset of denied?.shown ?? []) {
    assert.deepEqual(chain(ruleset, 'ip filter', 'FORWARD'), [...ufwForward, ...ownForward])
  }
  const beforeReject = ufwForward.indexOf('counter jump ufw-reject-forward')
  for (const ruleset of rejected?.shown ?? []) {
    assert.deepEqual(chain(ruleset, 'ip filter', 'FORWARD'), ufwForward.toSpliced(beforeReject, 0, ...ownForward))
  }
})

test('host firewall: a final rule that denies everything stays behind the accept rules, also where the policy accepts', async () => {
  const rules = `
table ip filter {
  chain FORWARD {
    type filter hook forward priority 0; policy accept;
    ip daddr 11.0.0.0/8 drop
    log prefix "denied" counter reject
    counter drop
  }
}`
  const { shown } = await steps(rules, [`open ${own}`, 'show', `open ${own}`, 'show'])
  for (const ruleset of shown) {
    const [first = '', ...rest] = chain(ruleset, 'ip filter', 'FORWARD')
    assert.equal(first, 'ip daddr 11.0.0.0/8 drop')
    assert.deepEqual(rest.slice(0, 2), ownForward)
    assert.equal(rest.length, 4)
  }
})

test('host firewall: where only rules of the operator drop, none is bypassed', async () => {
  const { shown, said } = await steps(docker.replace('policy drop', 'policy accept'), [`show`, `open ${own}`, 'show'])
  assert.equal(shown[1], shown[0])
  assert.deepEqual(said, [])
})

test('host firewall: rules before those of the operator are moved behind them, for every server, and none is moved twice', async () => {
  const atHead = ownForward.map((rule) => `insert rule ip filter FORWARD ${rule}`).join('\n')
  const late = 'ip saddr 10.200.0.0/16 ip daddr 12.0.0.0/8 drop'
  const { shown } = await steps(docker, [
    `load ${atHead}`,
    `open ${own}`,
    `open ${other}`,
    'show',
    `open ${own}`,
    'show',
    `load add rule ip filter FORWARD ${late}`,
    `open ${own}`,
    `open ${other}`,
    'show',
  ])
  const forward = shown.map((ruleset) => chain(ruleset, 'ip filter', 'FORWARD'))
  assert.deepEqual(forward[0], [...dockerForward, ...ownForward, ...forwardOf(other)])
  assert.deepEqual(forward[1], forward[0])
  assert.deepEqual(forward[2], [...dockerForward, late, ...ownForward, ...forwardOf(other)])
})

test('host firewall: a chain that no longer drops loses its rules', async () => {
  const mine = (policy: string) =>
    `table inet mine { chain through { type filter hook forward priority 0; policy ${policy}; }; }`
  const opened = `open ${own}`
  const { shown } = await steps(mine('drop'), [opened, 'show', `load ${mine('accept')}`, 'again', 'show'])
  assert.deepEqual(
    shown.map((ruleset) => chain(ruleset, 'inet mine', 'through')),
    [ownForward, []],
  )
  // Also the rules of a server that was killed before it could remove them.
  const { shown: adopted } = await steps(mine('drop'), [opened, `load ${mine('accept')}`, opened, 'show'])
  assert.deepEqual(chain(adopted[0], 'inet mine', 'through'), [])
})

test('host firewall: the host itself is opened for DNS and the model gateway alone', async () => {
  const mine = `table inet mine { chain in { type filter hook input priority 0; policy drop; iifname "lo" accept; }; }`
  const { shown } = await steps(mine, [`open ${own}`, 'show'])
  assert.deepEqual(chain(shown[0], 'inet mine', 'in'), [...ownInput, 'iifname "lo" accept'])
})

test('host firewall: rules that a reload removed are added again', async () => {
  const reload = `delete table ip filter\n${docker}`
  const { shown } = await steps(docker, [`open ${own}`, `load ${reload}`, 'show', `open ${own}`, 'show'])
  assert.deepEqual(
    shown.map((ruleset) => chain(ruleset, 'ip filter', 'FORWARD')),
    [dockerForward, [...dockerForward, ...ownForward]],
  )
})

test('host firewall: of two servers each removes its own rules alone', async () => {
  const { shown } = await steps(docker, [
    'show',
    `open ${own}`,
    'show',
    `open ${other}`,
    `close ${other}`,
    'show',
    `close ${own}`,
    'show',
  ])
  assert.equal(shown[2], shown[1])
  assert.equal(shown[3], shown[0])
})

test('host firewall: rules of another subnet that a killed server left are replaced', async () => {
  const stale = `insert rule ip filter FORWARD iifname "atl${own}*" ip saddr 10.9.0.0/16 accept comment "atoll ${own} from 10.9.0.0/16"`
  const { shown } = await steps(docker, [`load ${stale}`, `open ${own}`, 'show'])
  assert.deepEqual(chain(shown[0], 'ip filter', 'FORWARD'), [...dockerForward, ...ownForward])
})

test('host firewall: with ATOLL_HOST_FIREWALL=leave nothing is added, and earlier rules are removed', async () => {
  const { shown, said } = await steps(docker, ['show', `leave ${own}`, 'show', `open ${own}`, `leave ${own}`, 'show'])
  assert.deepEqual(new Set(shown), new Set([shown[0]]))
  assert.equal(said.length, 1)
})

test('host firewall: chains of unknown programs stay unchanged while they accept by policy', async () => {
  const mine = `table inet mine { chain through { type filter hook forward priority 0; policy accept; counter drop; }; }`
  const { shown, said } = await steps(mine, ['show', `open ${own}`, 'show'])
  assert.equal(shown[1], shown[0])
  assert.deepEqual(said, [])
})

test('host firewall: the table by which firewalld drops everything while it loads stays unchanged', async () => {
  const closed = `table inet firewalld_policy_drop { chain in { type filter hook input priority 9; policy drop; }; }`
  const { shown, said } = await steps(closed, ['show', `open ${own}`, 'show'])
  assert.equal(shown[1], shown[0])
  assert.deepEqual(said, [])
})

const firewalld = `
table inet firewalld {
  chain filter_INPUT {
    type filter hook input priority 10; policy accept;
    ct state { established, related } accept
    reject with icmpx admin-prohibited
  }
  chain filter_FORWARD {
    type filter hook forward priority 10; policy accept;
    ct state { established, related } accept
    reject with icmpx admin-prohibited
  }
}`

/** A folder with a `firewall-cmd` that changes firewalld's table as the daemon does, and keeps what it was asked. */
async function daemon(t: TestContext, { isPermanent = false } = {}): Promise<string> {
  const bin = await folder(t)
  const script = `#!/bin/sh
echo "$@" >>${bin}/asked
where='inet firewalld filter_INPUT'
case "$*" in
  '--permanent --zone=trusted --query-interface=atl${own}+') exit ${isPermanent ? 0 : 1} ;;
  '--zone=trusted --add-interface=atl${own}+') nft insert rule $where iifname '"atl${own}*"' accept ;;
  '--zone=trusted --remove-interface=atl${own}+')
    nft delete rule $where handle "$(nft -a list chain $where | sed -n 's/.*"atl.* handle //p')" ;;
  *) exit 2 ;;
esac`
  await writeFile(join(bin, 'firewall-cmd'), script, { mode: 0o755 })
  return bin
}

async function askedOf(bin: string): Promise<string[]> {
  return (await readFile(join(bin, 'asked'), 'utf8')).trim().split('\n')
}

test('host firewall: firewalld is asked for a zone, once and after each reload, and its chains stay its own', async (t) => {
  const bin = await daemon(t)
  const reload = `delete table inet firewalld\n${firewalld}`
  const { shown, said } = await steps(
    firewalld,
    ['show', `open ${own}`, `open ${own}`, `load ${reload}`, `open ${own}`, 'show', `close ${own}`, 'show'],
    bin,
  )
  assert.deepEqual(
    chain(shown[1], 'inet firewalld', 'filter_FORWARD'),
    chain(shown[0], 'inet firewalld', 'filter_FORWARD'),
  )
  assert.equal(shown[2], shown[0])
  assert.match(said.join('\n'), /in zone trusted of firewalld \(/)
  assert.deepEqual(await askedOf(bin), [
    `--zone=trusted --add-interface=atl${own}+`,
    `--zone=trusted --add-interface=atl${own}+`,
    `--permanent --zone=trusted --query-interface=atl${own}+`,
    `--zone=trusted --remove-interface=atl${own}+`,
  ])
})

test('host firewall: links that the operator put into a zone of firewalld permanently stay there', async (t) => {
  const bin = await daemon(t, { isPermanent: true })
  const byOperator = `insert rule inet firewalld filter_INPUT iifname "atl${own}*" accept`
  const { shown } = await steps(
    `${firewalld}\n${byOperator}`,
    ['show', `leave ${own}`, `close ${own}`, 'show', `open ${own}`, `close ${own}`, 'show'],
    bin,
  )
  assert.deepEqual(new Set(shown), new Set([shown[0]]))
  const query = `--permanent --zone=trusted --query-interface=atl${own}+`
  assert.deepEqual(await askedOf(bin), [query, query, query])
})

test('host firewall: a firewalld that cannot be asked gets the rules into its chains, and loses them at the end', async (t) => {
  const bin = await folder(t)
  await writeFile(join(bin, 'firewall-cmd'), '#!/bin/sh\nexit 252', { mode: 0o755 })
  const { shown } = await steps(
    firewalld,
    ['show', `open ${own}`, 'show', `open ${own}`, 'show', `close ${own}`, 'show'],
    bin,
  )
  assert.deepEqual(chain(shown[1], 'inet firewalld', 'filter_FORWARD').slice(0, 2), ownForward.toReversed())
  assert.deepEqual(chain(shown[1], 'inet firewalld', 'filter_INPUT').slice(0, ownInput.length), ownInput)
  assert.equal(shown[2], shown[1])
  assert.equal(shown[3], shown[0])
})

test('host firewall: in legacy iptables accept rules are behind those of the operator and before a rule that denies everything', () => {
  const acceptRules = acceptRulesFor({
    hash: own,
    cidr: '10.200.0.0/16',
    hostAddress: '10.200.0.1',
    gatewayPort: 4180,
    metadataPort: 4181,
    egressPort: 4182,
    egressDnsPort: 4183,
  })
  const pass = (words: string, comment: string) =>
    `FORWARD ${words} -m comment --comment "atoll ${own} ${comment} 10.200.0.0/16" -j ACCEPT`
  const from = pass(`-i atl${own}+ -s 10.200.0.0/16`, 'from')
  const to = pass(`-o atl${own}+ -d 10.200.0.0/16`, 'to')
  const saved = (policy: string, ...rules: string[]) =>
    ['*filter', ':INPUT ACCEPT [0:0]', `:FORWARD ${policy} [0:0]`, ...rules, 'COMMIT', ''].join('\n')
  const changes = (text: string) => legacyChanges(text, own, acceptRules).changes
  const at = (number: number) => [from, to].map((rule) => rule.replace('FORWARD', `-I FORWARD ${number}`))

  const user = ['-A FORWARD -j DOCKER-USER', '-A DOCKER-USER -s 10.200.0.0/16 -d 11.0.0.0/8 -j DROP']
  assert.deepEqual(changes(saved('DROP', ...user, '-A DOCKER-USER -j RETURN')), at(2))
  assert.deepEqual(changes(saved('ACCEPT', ...user, '-A DOCKER-USER -j RETURN')), [])
  const rejecting = ['-A FORWARD -j reject', '-A FORWARD -j track', '-A reject -j REJECT --reject-with tcp-reset']
  assert.deepEqual(changes(saved('DROP', ...user, ...rejecting)), at(2))
  const last = String.raw`-A FORWARD -m comment --comment "no \"more\" of it" -j DROP`
  assert.deepEqual(changes(saved('ACCEPT', '-A FORWARD -d 11.0.0.0/8 -j DROP', last)), at(2))
  assert.deepEqual(changes(saved('ACCEPT', '-A FORWARD -d 11.0.0.0/8 -j DROP', `-A ${from}`, `-A ${to}`, last)), [])
  assert.deepEqual(changes(saved('DROP', `-A ${from}`, `-A ${to}`, ...user)), [`-D ${from}`, `-D ${to}`, ...at(2)])
})

test('host firewall: a machine without a firewall costs one program', async (t) => {
  const bin = await folder(t)
  await writeFile(join(bin, 'nft'), `#!/bin/sh\necho "$@" >>${bin}/started\nexec ${await nft()} "$@"`, { mode: 0o755 })
  await steps('', [`open ${own}`], bin)
  assert.equal(await readFile(join(bin, 'started'), 'utf8'), '--json list chains\n')
})

test('host firewall: a firewall that cannot be changed is logged, and the server goes on', async (t) => {
  const bin = await folder(t)
  const script = `#!/bin/sh\n[ "$1" = -f ] && { echo Operation not permitted >&2; exit 1; }\nexec ${await nft()} "$@"`
  await writeFile(join(bin, 'nft'), script, { mode: 0o755 })
  const { said } = await steps(docker, [`open ${own}`], bin)
  assert.match(said.join('\n'), /cannot be adapted to sandboxes \(ip filter FORWARD\).*Operation not permitted/)
})

async function nft(): Promise<string> {
  return (await runFile('sh', ['-c', 'PATH="$PATH:/usr/sbin" command -v nft'])).stdout.trim()
}
