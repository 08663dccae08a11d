/** Sandboxes behind the firewalls that machines of users have: their rule sets, each on a machine of its own. */
import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { machine, ownNetwork, run } from './own-machine.ts'

const folder = await mkdtemp('/var/tmp/atoll-firewalls-')
after(() => rm(folder, { recursive: true }))

/** As these programs fill them by default, of what matters to sandboxes. */
const firewalls = [
  {
    name: 'Docker',
    places: 'ip filter FORWARD',
    lost: 'the internet is not reached',
    advice: 'Docker: iptables -I DOCKER-USER ',
    rules: `
table ip filter {
  chain DOCKER-USER {
    return
  }
  chain FORWARD {
    type filter hook forward priority 0; policy drop;
    jump DOCKER-USER
    oifname "docker0" ct state related,established accept
    iifname "docker0" oifname != "docker0" accept
  }
}`,
  },
  {
    name: 'ufw',
    places: 'ip filter INPUT, ip filter FORWARD',
    lost: 'names are not resolved; the model gateway is not reached; the metadata service is not reached; the internet is not reached',
    advice: 'ufw: ufw allow in on ',
    rules: `
table ip filter {
  chain ufw-before-input {
    iifname "lo" accept
    ct state related,established accept
  }
  chain INPUT {
    type filter hook input priority 0; policy drop;
    jump ufw-before-input
  }
  chain ufw-before-forward {
    ct state related,established accept
  }
  chain ufw-after-logging-forward {
    limit rate 3/minute burst 10 packets log prefix "[UFW BLOCK] "
  }
  chain ufw-reject-forward {
  }
  chain FORWARD {
    type filter hook forward priority 0; policy drop;
    jump ufw-before-forward
    jump ufw-after-logging-forward
    jump ufw-reject-forward
  }
}`,
  },
  {
    name: 'firewalld',
    places: 'inet firewalld filter_INPUT, inet firewalld filter_FORWARD',
    // It accepts what was translated, as the packets to the metadata service are.
    lost: 'names are not resolved; the model gateway is not reached; the internet is not reached',
    advice: 'firewalld: firewall-cmd --permanent ',
    rules: ['input', 'forward']
      .map(
        (hook) => `
table inet firewalld {
  chain filter_${hook.toUpperCase()} {
    type filter hook ${hook} priority filter + 10; policy accept;
    ct state { established, related } accept
    ct status dnat accept
    iifname "lo" accept
    ct state invalid drop
    reject with icmpx admin-prohibited
  }
}`,
      )
      .join('\n'),
  },
] as const

/**
 * A machine that resolves a name of the internet and reaches what has it, in a network namespace of its own: a name server on its
 * loopback, and a link to another namespace, which ends with it.
 */
const withInternet = `
setpriv --pdeathsig KILL unshare --net sleep infinity &
until ! [ /proc/$!/ns/net -ef /proc/self/ns/net ]; do sleep 0.01; done
ip link add internet type veth peer name eth0 netns $!
ip address add 11.255.254.1/30 dev internet
ip link set internet up
nsenter --net=/proc/$!/ns/net ip -batch - <<'PEER'
address add 11.255.254.2/30 dev eth0
link set eth0 up
PEER
# It ends with its namespace of processes: by itself it would forget whose end is its own.
setpriv --pdeathsig KILL unshare --pid --fork --kill-child sh -c 'dnsmasq --keep-in-foreground --conf-file=/dev/null --no-resolv \\
  --bind-interfaces --listen-address=127.0.0.1 --user=root --pid-file= --address=/example.com/11.255.254.2 & wait' &
echo nameserver 127.0.0.1 >"$SCRATCH/resolv.conf"
mount --bind "$SCRATCH/resolv.conf" "$(readlink --canonicalize /etc/resolv.conf)"
until getent ahostsv4 example.com >/dev/null; do sleep 0.05; done`

/** What doctor reports behind these rules, by default of the network alone, with the rules before and after it. */
async function doctorBehind(
  rules: string,
  {
    more = '',
    env = {},
    program = 'test/e2e/network-trial.ts',
  }: { more?: string; env?: NodeJS.ProcessEnv; program?: string } = {},
) {
  const scratch = await mkdtemp(join(folder, 'firewall-'))
  const script = `${ownNetwork}\nnft -f - <<'RULES'\n${rules}\nRULES\n${more}\nnft list ruleset >"$SCRATCH/before"`
  const look = '"$@"; nft list ruleset >"$SCRATCH/after"'
  const command = [...machine(script, '--net'), 'sh', '-c', look, 'sh', process.execPath, program]
  const { output } = await run(command, { SCRATCH: scratch, ATOLL_DATA_DIR: scratch, ...env })
  const [rulesBefore, rulesAfter] = await Promise.all(
    ['before', 'after'].map((name) => readFile(join(scratch, name), 'utf8')),
  )
  return { output, rulesBefore, rulesAfter }
}

for (const { name, rules, places, lost, advice } of firewalls) {
  test(`network: a sandbox has what it needs behind the rules of ${name}, by rules of Atoll's that end with it`, async () => {
    const { output, rulesBefore, rulesAfter } = await doctorBehind(rules, { more: withInternet })
    const outcome =
      'a sandbox reaches DNS, the model gateway, the metadata service and the outside (example.com at 11.255.254.2)'
    const row = /^network .*$/m.exec(output)?.[0]
    assert.equal(row, `network works ${outcome}; Atoll has added rules to ${places}`, output)
    assert.equal(rulesAfter, rulesBefore)
  })

  test(`doctor: it names ${name} and what to do where Atoll adds no rules`, async () => {
    const { output, rulesBefore, rulesAfter } = await doctorBehind(rules, { env: { ATOLL_HOST_FIREWALL: 'leave' } })
    const row = new RegExp(`^network +fails +${lost}\n +→ ATOLL_HOST_FIREWALL is leave, .*: ${advice}`, 'm')
    assert.match(output, row)
    assert.equal(rulesAfter, rulesBefore)
  })
}

test('network: what an operator keeps sandboxes from in a chain of Docker they do not reach', async () => {
  const rules = firewalls[0].rules.replace('return', 'ip saddr 10.0.0.0/8 ip daddr 11.255.254.2 drop')
  const { output } = await doctorBehind(rules, { more: withInternet })
  assert.match(output, /^network +fails +11.255.254.2 is not reached, which this/m)
})

test('doctor: forks and wakes work where ufw rejects what nobody has asked for', async () => {
  const rules = firewalls[1].rules.replace('chain ufw-reject-forward {', '$& reject')
  const { output } = await doctorBehind(rules, { more: withInternet, program: 'src/server/doctor.ts' })
  assert.match(output, /^network +works /m)
  assert.match(output, /^wake +works /m)
})

test('doctor: it names a chain of an unknown program that drops, and says what to type', async () => {
  const rules = `
table inet mine {
  chain through {
    type filter hook forward priority 0; policy accept;
    counter drop
  }
}`
  const { output } = await doctorBehind(rules)
  const row = /^network +fails +the internet is not reached\n +→ if inet mine through drops: (.*)$/m.exec(output)
  assert.ok(row, output)
  // As it says, typed into a shell.
  const { output: mended } = await doctorBehind(rules, { more: row[1] ?? '' })
  assert.match(mended, /^network +works /m)
})

test('doctor: it reports a sandbox that does not resolve or reach what the machine does', async () => {
  // What the forwarder asks is answered, but not to its user; what the machine itself sends passes.
  const rules = `
table inet mine {
  chain out {
    type filter hook output priority 0; policy accept;
    meta skuid nobody udp dport 53 drop
  }
  chain through {
    type filter hook forward priority 0; policy accept;
    ip daddr 11.255.254.2 drop
  }
}`
  const { output } = await doctorBehind(rules, { more: withInternet })
  assert.match(
    output,
    /^network +fails +example.com is not resolved, which this machine itself resolves; 11.255.254.2 is not reached, which this/m,
  )
})
