/** Real rule sets, each in a network namespace of its own. */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { promisify } from 'node:util'
import type { Seen } from '../testing/host-firewall-steps.ts'

const runFile = promisify(execFile)
const program = join(import.meta.dirname, '../testing/host-firewall-steps.ts')
const [own, other] = ['0a1b2c3d', '4e5f6071']

/** Behind `rules` that are there before. Programs are looked for in `bin` first. */
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

const docker = `
table ip filter {
  chain DOCKER-USER {
  }
  chain FORWARD {
    type filter hook forward priority 0; policy drop;
    jump DOCKER-USER
  }
  chain INPUT {
    type filter hook input priority 0; policy accept;
  }
}`
const ownForward = [
  `oifname "atl${own}*" ip daddr 10.200.0.0/16 counter accept comment "atoll ${own} to 10.200.0.0/16"`,
  `iifname "atl${own}*" ip saddr 10.200.0.0/16 counter accept comment "atoll ${own} from 10.200.0.0/16"`,
]
const ownInput = [
  `iifname "atl${own}*" ip daddr 10.200.0.1 tcp dport 4180 counter accept comment "atoll ${own} tcp 4180 of 10.200.0.1"`,
  `iifname "atl${own}*" ip daddr 10.200.0.1 tcp dport 53 counter accept comment "atoll ${own} tcp 53 of 10.200.0.1"`,
  `iifname "atl${own}*" ip daddr 10.200.0.1 udp dport 53 counter accept comment "atoll ${own} udp 53 of 10.200.0.1"`,
]

test('a chain that drops gets accept rules at its head, once, and one that lets everything through gets none', async () => {
  const { shown, said } = await steps(docker, [`open ${own}`, 'show', `open ${own}`, 'show'])
  for (const ruleset of shown) {
    assert.deepEqual(chain(ruleset, 'ip filter', 'FORWARD'), [...ownForward, 'jump DOCKER-USER'])
    assert.deepEqual(chain(ruleset, 'ip filter', 'INPUT'), [])
  }
  assert.equal(said.length, 1)
  assert.match(said[0] ?? '', new RegExp(`by rules for atl${own}\\* in ip filter FORWARD \\(`))
})

test('of the host itself a firewall is opened for names and the model gateway alone', async () => {
  const mine = `table inet mine { chain in { type filter hook input priority 0; policy drop; iifname "lo" accept; }; }`
  const { shown } = await steps(mine, [`open ${own}`, 'show'])
  assert.deepEqual(chain(shown[0], 'inet mine', 'in'), [...ownInput, 'iifname "lo" accept'])
})

test('rules that a reload has removed are added again', async () => {
  const reload = `flush chain ip filter FORWARD\nadd rule ip filter FORWARD jump DOCKER-USER`
  const { shown } = await steps(docker, [`open ${own}`, `load ${reload}`, 'show', `open ${own}`, 'show'])
  assert.deepEqual(
    shown.map((ruleset) => chain(ruleset, 'ip filter', 'FORWARD')),
    [['jump DOCKER-USER'], [...ownForward, 'jump DOCKER-USER']],
  )
})

test('of two servers each removes its own rules alone', async () => {
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

test('rules of another subnet, which a killed server has left, are replaced', async () => {
  const stale = `insert rule ip filter FORWARD iifname "atl${own}*" ip saddr 10.9.0.0/16 accept comment "atoll ${own} from 10.9.0.0/16"`
  const { shown } = await steps(docker, [`load ${stale}`, `open ${own}`, 'show'])
  assert.deepEqual(chain(shown[0], 'ip filter', 'FORWARD'), [...ownForward, 'jump DOCKER-USER'])
})

test('where the operator sees to the firewall nothing is added, and what was added before is removed', async () => {
  const { shown, said } = await steps(docker, ['show', `leave ${own}`, 'show', `open ${own}`, `leave ${own}`, 'show'])
  assert.deepEqual(new Set(shown), new Set([shown[0]]))
  assert.equal(said.length, 1)
})

test('chains of programs that nobody knows stay as they are while they accept by themselves', async () => {
  const mine = `table inet mine { chain through { type filter hook forward priority 0; policy accept; counter drop; }; }`
  const { shown, said } = await steps(mine, ['show', `open ${own}`, 'show'])
  assert.equal(shown[1], shown[0])
  assert.deepEqual(said, [])
})

test('what firewalld closes while it loads its rules stays closed', async () => {
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

test('firewalld is asked for a zone, once and after each reload, and its chains stay its own', async (t) => {
  const bin = await folder(t)
  // Its table as it changes it itself, in the place of the daemon.
  const script = `#!/bin/sh
echo "$@" >>${bin}/asked
where='inet firewalld filter_INPUT'
case "$2" in
  --add-*) nft insert rule $where iifname '"atl${own}*"' accept ;;
  *) nft delete rule $where handle "$(nft -a list chain $where | sed -n 's/.*"atl.* handle //p')" ;;
esac`
  await writeFile(join(bin, 'firewall-cmd'), script, { mode: 0o755 })
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
  assert.deepEqual((await readFile(join(bin, 'asked'), 'utf8')).trim().split('\n'), [
    `--zone=trusted --add-interface=atl${own}+`,
    `--zone=trusted --add-interface=atl${own}+`,
    `--zone=trusted --remove-interface=atl${own}+`,
  ])
})

test('a firewalld that cannot be asked gets the rules into its chains, and loses them at the end', async (t) => {
  const bin = await folder(t)
  await writeFile(join(bin, 'firewall-cmd'), '#!/bin/sh\nexit 252', { mode: 0o755 })
  const { shown } = await steps(
    firewalld,
    ['show', `open ${own}`, 'show', `open ${own}`, 'show', `close ${own}`, 'show'],
    bin,
  )
  assert.deepEqual(chain(shown[1], 'inet firewalld', 'filter_FORWARD').slice(0, 2), ownForward)
  assert.deepEqual(chain(shown[1], 'inet firewalld', 'filter_INPUT').slice(0, 3), ownInput)
  assert.equal(shown[2], shown[1])
  assert.equal(shown[3], shown[0])
})

test('on a machine without a firewall one program is started', async (t) => {
  const bin = await folder(t)
  await writeFile(join(bin, 'nft'), `#!/bin/sh\necho "$@" >>${bin}/started\nexec ${await nft()} "$@"`, { mode: 0o755 })
  await steps('', [`open ${own}`], bin)
  assert.equal(await readFile(join(bin, 'started'), 'utf8'), '--json list chains\n')
})

test('a firewall that cannot be changed is told, and does not keep the server from its work', async (t) => {
  const bin = await folder(t)
  const script = `#!/bin/sh\n[ "$1" = -f ] && { echo Operation not permitted >&2; exit 1; }\nexec ${await nft()} "$@"`
  await writeFile(join(bin, 'nft'), script, { mode: 0o755 })
  const { said } = await steps(docker, [`open ${own}`], bin)
  assert.match(said.join('\n'), /cannot be adapted to sandboxes \(ip filter FORWARD\).*Operation not permitted/)
})

async function nft(): Promise<string> {
  return (await runFile('sh', ['-c', 'PATH="$PATH:/usr/sbin" command -v nft'])).stdout.trim()
}
