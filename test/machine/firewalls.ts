/**
 * Sandboxes of the service behind the firewalls that distributions have, each installed as an operator would do it and removed
 * again, on a machine of its own (`machine.sh`). `ATOLL_MACHINE_KEY` is a key of the service.
 */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { appendFile, readFile, writeFile } from 'node:fs/promises'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { Subnet } from '../../src/runtime/network/index.ts'
import { HostNames } from '../../src/runtime/host-names.ts'
import { ApiClient } from '../support/api-client.ts'
import { key, ok, shell } from './service-client.ts'

const runFile = promisify(execFile)
const url = 'http://127.0.0.1:4100'
const api = new ApiClient(url, key)
const { hash } = new HostNames('/var/lib/atoll')
const project = `${import.meta.dirname}/../..`

/** It stands for the internet: a network namespace with an address that sandboxes may reach, and a name for it. */
const internet = { link: 'internet', host: '11.255.254.1', address: '11.255.254.2', name: 'example.com' }

interface Firewall {
  package: string
  enable: string
  /** What an operator does to it afterwards. */
  changes: string[]
  disable: string
  /** What a sandbox loses where no rules are added. */
  lost: string[]
  /** Where the rules are added. */
  places: RegExp
}

const allLost = [
  'names are not resolved',
  'the model gateway is not reached',
  'the metadata service is not reached',
  'the internet is not reached',
]
const firewalls: Firewall[] = [
  {
    package: 'ufw',
    enable: 'ufw allow 22/tcp && ufw --force enable',
    changes: ['ufw reload', 'ufw --force disable && ufw --force enable'],
    disable: 'ufw --force disable',
    lost: allLost,
    places: /ip filter (INPUT|FORWARD), ip filter (INPUT|FORWARD)/,
  },
  {
    package: 'firewalld',
    enable: 'systemctl is-active firewalld',
    changes: ['firewall-cmd --reload', 'firewall-cmd --complete-reload', 'systemctl restart firewalld'],
    disable: 'systemctl stop firewalld',
    // It accepts what has been translated.
    lost: allLost.filter((loss) => !loss.includes('metadata')),
    places: /a zone of firewalld/,
  },
  {
    package: 'docker.io',
    // It lets nothing be forwarded by default where it is the one that switches forwarding on.
    enable: 'systemctl stop docker docker.socket && sysctl -q net.ipv4.ip_forward=0 && systemctl start docker',
    changes: ['systemctl restart docker'],
    disable: 'systemctl stop docker docker.socket',
    lost: ['the internet is not reached'],
    places: /ip filter FORWARD/,
  },
  {
    // Rules of the older kind, as some hosters have them.
    package: 'iptables',
    enable: `
      iptables-legacy -A INPUT -i lo -j ACCEPT
      iptables-legacy -A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
      iptables-legacy -A INPUT -p tcp --dport 22 -j ACCEPT
      iptables-legacy -A INPUT -j REJECT
      iptables-legacy -P FORWARD DROP`,
    changes: ['iptables-legacy-save | grep -v "atoll " | iptables-legacy-restore'],
    disable: 'iptables-legacy -P FORWARD ACCEPT; iptables-legacy -F',
    lost: allLost,
    places: /(INPUT|FORWARD) of iptables-legacy, (INPUT|FORWARD) of iptables-legacy/,
  },
]

async function host(script: string, env: NodeJS.ProcessEnv = {}): Promise<string> {
  const options = {
    cwd: project,
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive', ...env },
    maxBuffer: 2 ** 26,
  }
  const { stdout } = await runFile('bash', ['-ec', script], options)
  return stdout
}

/** What a sandbox does not get: a name of outside, the model gateway, the metadata service, a host outside. */
async function lostBy(id: string): Promise<string> {
  const script = `
    getent ahostsv4 ${internet.name} >/dev/null || echo names
    curl -s -m 10 -o /dev/null http://gateway.atoll.internal:4180/ || echo gateway
    curl -s -m 10 -o /dev/null http://169.254.169.254/ || echo metadata
    curl -s -m 10 -o /dev/null http://${internet.name}/ || echo outside`
  return await shell(api, id, script)
}

/** Nothing else of the machine answers a sandbox, whatever a firewall lets through: it has sshd on all addresses. */
async function assertHostIsClosed(id: string): Promise<void> {
  const script = `
    for host in ${new Subnet('10.200.0.0/16').gatewayAddress} ${internet.host}; do
      timeout 3 bash -c "</dev/tcp/$host/22" 2>/dev/null && echo "$host"
    done
    true`
  assert.equal(await shell(api, id, script), '')
}

async function reachesAll(id: string): Promise<void> {
  while ((await lostBy(id)) !== '') await sleep(500)
}

/** Its row about the network. */
async function doctor(env: NodeJS.ProcessEnv = {}): Promise<string> {
  const table = await host('npm run --silent doctor || echo "status $?"', env)
  return /^network .*(\n +→.*)?/m.exec(table)?.[0] ?? table
}

const rules = () => host('! command -v iptables-legacy-save >/dev/null || iptables-legacy-save; nft list ruleset')

let sandbox: string
let hostsFile: string

before(async () => {
  hostsFile = await readFile('/etc/hosts', 'utf8')
  await host(`
    ip netns add ${internet.link}
    ip link add ${internet.link} type veth peer name eth0 netns ${internet.link}
    ip address add ${internet.host}/30 dev ${internet.link}
    ip link set ${internet.link} up
    ip -n ${internet.link} address add ${internet.address}/30 dev eth0
    ip -n ${internet.link} link set eth0 up
    ip -n ${internet.link} link set lo up
    systemd-run --quiet --unit=atoll-internet --working-directory=/usr/share/doc ip netns exec ${internet.link} \
      node -e 'for (const port of [80, 443]) require("http").createServer((q, s) => s.end()).listen(port)'`)
  // The name server on the loopback answers with it.
  await appendFile('/etc/hosts', `${internet.address} ${internet.name}\n`)
  sandbox = (await ok(api.post('/api/sandboxes', { timeout: 0 }))).sandboxID
})

after(async () => {
  await api.delete(`/api/sandboxes/${sandbox}`)
  await writeFile('/etc/hosts', hostsFile)
  await host(`systemctl stop atoll-internet; ip link delete ${internet.link}; ip netns delete ${internet.link}`)
})

test('firewall: without one a sandbox reaches everything, and no rules are added', async () => {
  await reachesAll(sandbox)
  const row = await doctor()
  assert.match(row, new RegExp(`^network +works +.*\\(${internet.name} at ${internet.address}\\)$`))
})

for (const firewall of firewalls) {
  test(`firewall: behind ${firewall.package} a sandbox resolves names and reaches the model gateway and the internet`, async () => {
    await host(`apt-get update -q && apt-get install --yes -q ${firewall.package}`)
    try {
      await host(firewall.enable)
      const left = await doctor({ ATOLL_HOST_FIREWALL: 'leave' })
      assert.match(left, new RegExp(`^network +fails +${firewall.lost.join('; ')}\n +→ ATOLL_HOST_FIREWALL is leave`))
      // It has run all the time, so that the server notices by itself.
      await reachesAll(sandbox)
      await assertHostIsClosed(sandbox)
      assert.match(await doctor(), new RegExp(`^network +works .*Atoll has added rules to ${firewall.places.source}`))
      for (const change of firewall.changes) {
        await host(change)
        await reachesAll(sandbox)
      }
      // Doctor's are gone.
      assert.deepEqual(await linksNamed(), [`atl${hash}`])
    } finally {
      // What stays of its rules must not meet the next.
      await host(`${firewall.disable} || true
        apt-get purge --yes -q --autoremove ${firewall.package}
        for table in 'ip filter' 'ip6 filter' 'ip nat' 'ip6 nat' 'ip raw' 'inet firewalld'; do
          nft delete table $table 2>/dev/null || true
        done`)
    }
  })
}

/** Links that the rules of firewalls name. */
async function linksNamed(): Promise<string[]> {
  const tables = (await rules()).split(/^table /m).filter((table) => !/^\w+ atoll_/.test(table))
  return [...new Set(tables.flatMap((table) => table.match(/\batl[0-9a-f]{8}/g) ?? []))]
}
