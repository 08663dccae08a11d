/** What only a runc host shows: its network seen from both ends, its images, a reboot, a second server beside it. */
import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import { mkdir, mkdtemp, readdir, readFile, realpath, rm, stat, symlink, unlink, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { once } from 'node:events'
import { tmpdir } from 'node:os'
import { describe, test } from 'node:test'
import { promisify } from 'node:util'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { createOciDriver, ociRuntimes } from '../../src/runtime/index.ts'
import { imageDir } from '../support/images.ts'
import { knowing } from './driver-known.ts'
import { makeRuncFixture, mountsOf, type RuncFixture, useRunc } from './driver-runc-host.ts'
import { connects, echoServer, Outside } from './network-world.ts'
import { create, freshId, python, remove, shell, specOf, succeed } from './driver-shell.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

const runFile = promisify(execFile)
const echoPort = 8_077
/** Asks what {@link makeInternet} has made, which a sandbox may reach. */
const ask = ({ address }: Outside, seconds = 60) =>
  `timeout ${seconds} bash -c 'exec 3<>/dev/tcp/${address}/${echoPort}; echo >&3; head -n 1 <&3'`
const hostNetwork = { run: async (command: string, ...argv: string[]) => (await runFile(command, argv)).stdout.trim() }

describe('the runc driver on its host', () => {
  const runc = useRunc()
  const { guest } = runc

  test('network: a sandbox reaches the internet, and the internet no sandbox', async () => {
    await using internet = await makeInternet()
    const id = await create(runc.driver)
    assert.equal(await succeed(guest(id), ask(internet)), internet.host)
    const server = `import socket\ns = socket.create_server(("0.0.0.0", 80))\nwhile True: s.accept()[0].close()`
    await guest(id).spawn({ id: 'server', argv: ['/usr/bin/python3', '-c', server], envs: {} })
    await eventually(async () => (await guest(id).ports()).includes(80))
    const address = await succeed(guest(id), 'hostname -I')
    assert.equal(await connects(internet, address, 80), false)
    assert.equal(await connects(internet, runc.driver.gateway().listenHost, 53), false)
    assert.equal(await connects(hostNetwork, address, 80), false, 'nor does the host itself')
    await runc.driver.delete(id)
  })

  test('network: a connection flood exhausts the limit of its own sandbox alone', async () => {
    await using internet = await makeInternet()
    const [greedy, other] = await Promise.all([create(runc.driver), create(runc.driver)])
    assert.equal(await succeed(guest(greedy), ask(internet)), internet.host)
    await python(
      guest(greedy),
      `
import socket
for _ in range(5000):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.sendto(b"x", ("${internet.address}", 9))
    s.close()`,
    )
    assert.notEqual((await shell(guest(greedy), ask(internet, 3))).exitCode, 0)
    assert.equal(await succeed(guest(other), ask(internet)), internet.host)
    await remove(runc.driver, greedy, other)
  })

  test('network: packets with a foreign address or MAC are dropped', async () => {
    const { listenHost, listenPort } = runc.driver.gateway()
    const gateway = createServer((connection) => connection.end())
    gateway.listen(listenPort, listenHost)
    await once(gateway, 'listening')
    const id = await create(runc.driver)
    const net = `--net=/proc/${await runc.fixture.pidOf(id)}/ns/net`
    const inside = { run: async (...argv: string[]) => (await runFile('nsenter', [net, ...argv])).stdout.trim() }
    const own = await succeed(guest(id), 'hostname -I')
    assert.equal(await connects(inside, listenHost, listenPort, own), true)
    const stolen = '10.231.7.7'
    await inside.run('ip', 'address', 'add', `${stolen}/20`, 'dev', 'eth0')
    assert.equal(await connects(inside, listenHost, listenPort, stolen), false)
    assert.equal(await connects(inside, listenHost, listenPort, own), true)
    await inside.run('ip', 'link', 'set', 'eth0', 'address', '02:00:00:00:00:07')
    assert.equal(await connects(inside, listenHost, listenPort, own), false)
    await runc.driver.delete(id)
    await new Promise((resolve) => gateway.close(resolve))
  })

  test('restart: waits for the last user of the previous root', async () => {
    const id = await create(runc.driver)
    await succeed(guest(id), 'echo kept > /root/file')
    spawn('sleep', ['0.5'], { cwd: `${runc.fixture.names.sandboxDir(id)}/root` })
    await runc.driver.restart(specOf(id))
    assert.equal(await succeed(guest(id), 'cat /root/file'), 'kept')
    await runc.driver.delete(id)
  })

  test('wake: a root that a cut-off restore left mounted is detached, and its files stay', async () => {
    const id = await create(runc.driver)
    await succeed(guest(id), 'echo kept > /root/file')
    await runc.driver.hibernate(id)
    // Where runc has it for CRIU.
    const left = `${runc.fixture.names.runDir}/runc/${id}/criu-root`
    await mkdir(left, { recursive: true })
    await runFile('mount', ['--bind', `${runc.fixture.names.poolDir}/sandboxes/${id}`, left])
    await runc.driver.wake(specOf(id))
    assert.equal(await succeed(guest(id), 'cat /root/file'), 'kept')
    await runc.driver.delete(id)
    assert.equal((await readFile('/proc/mounts', 'utf8')).includes(left), false)
  })

  test('fence: memory whose processes have gone on is never restored on the newer disk', async () => {
    if (!runc.driver.capabilities.fullCheckpoints) return
    const id = await create(runc.driver)
    const loop = 'while :; do echo > /root/loop; sleep 0.05; done'
    await guest(id).spawn({ id: 'loop', argv: ['/bin/sh', '-c', loop], envs: { PATH: '/usr/bin' } })
    await succeed(guest(id), 'until test -e /root/loop; do sleep 0.02; done')
    // The wake waits for its answer until the server is killed.
    await runc.fixture.hang(id)
    await runc.driver.hibernate(id)
    const file = `${runc.fixture.names.poolDir}/sandboxes/${id}/upper/root/loop`
    const writtenMs = async () => (await stat(file)).mtimeMs
    const savedMs = await writtenMs()
    await runc.driver.close()
    const victim = await runc.fixture.startVictim({ sandboxIds: [id], cycled: id })
    await eventually(async () => (await writtenMs()) > savedMs)
    await victim.kill()
    assert.deepEqual((await runc.reopen({ sandboxIds: [id] })).dormant, [id])
    await runc.driver.wake(specOf(id))
    assert.equal((await shell(guest(id), 'pgrep --full loop')).stdout, '', 'it was started anew')
    assert.ok((await writtenMs()) > savedMs)
    await runc.driver.delete(id)
  })

  test('hibernate: works while earlier saved memory is still being removed', async () => {
    if (!runc.driver.capabilities.fullCheckpoints) return
    const id = await create(runc.driver)
    await runc.driver.hibernate(id)
    const saved = `${runc.fixture.names.poolDir}/memory/saved`
    const [first = ''] = await readdir(saved)
    // Keeps its removal from coming to an end.
    const file = `${saved}/${first}/stays`
    await writeFile(file, '')
    await runFile('chattr', ['+i', file])
    await runc.driver.wake(specOf(id))
    await runc.driver.hibernate(id)
    await runFile('chattr', ['-i', file])
    await runc.driver.wake(specOf(id))
    await runc.driver.delete(id)
    await eventually(async () => (await readdir(saved)).length === 0)
  })

  test('images: mounts that a cut-off CRIU left are removed with them, at open too', async () => {
    const id = await create(runc.driver)
    await runc.driver.hibernate(id)
    const leave = async (owner: string): Promise<string> => {
      const left = `${runc.fixture.names.poolDir}/memory/runs/${owner}/.criu.cgyard.x`
      const mountBoth = async (): Promise<void> => {
        await mkdir(left, { recursive: true })
        await runFile('mount', ['-t', 'tmpfs', 'cgyard', left])
        await mkdir(`${left}/within`)
        await runFile('mount', ['-t', 'tmpfs', 'group', `${left}/within`])
      }
      // The supervisor may still clean up after the hibernation.
      await eventually(() =>
        mountBoth().then(
          () => true,
          () => false,
        ),
      )
      return left
    }
    const lefts = [await leave(id)]
    await runc.driver.wake(specOf(id))
    await runc.driver.hibernate(id)
    lefts.push(await leave(id), await leave(freshId('sb')))
    await runc.driver.close()
    assert.deepEqual((await runc.reopen({ sandboxIds: [id] })).dormant, [id])
    const mounts = await readFile('/proc/mounts', 'utf8')
    for (const left of lefts) assert.equal(mounts.includes(left), false, left)
    await runc.driver.wake(specOf(id))
    await runc.driver.delete(id)
  })

  test('masked paths: hidden in forks and after a wake, and tools work without them', async () => {
    const [fork, checkpoint] = [freshId('sb'), freshId('cp')]
    const assertMasked = async (sandboxId: string): Promise<void> => {
      for (const file of ['/proc/cmdline', '/proc/diskstats', '/proc/locks', '/proc/partitions']) {
        assert.equal(await succeed(guest(sandboxId), `cat ${file}`), '', file)
      }
      const folders = ['/proc/pressure', '/sys/block', '/sys/devices/virtual/block', '/sys/fs/btrfs', '/sys/fs/ext4']
      for (const folder of folders) {
        assert.equal(await succeed(guest(sandboxId), `ls ${folder} 2>/dev/null || true`), '', folder)
      }
      await succeed(guest(sandboxId), 'node -e "process.exit(require(\'node:os\').cpus().length > 0 ? 0 : 1)"')
      await succeed(guest(sandboxId), 'ps aux && df && df /root && free && uptime')
    }
    const id = await create(runc.driver, { memoryMb: 512 })
    await assertMasked(id)
    if (runc.driver.capabilities.fullCheckpoints) {
      await runc.driver.checkpoint(id, checkpoint, 'full')
      await runc.driver.create(specOf(fork, { memoryMb: 512, from: { checkpointId: checkpoint } }))
      await assertMasked(fork)
      await runc.driver.hibernate(fork)
      await runc.driver.wake(specOf(fork, { memoryMb: 512 }))
      await assertMasked(fork)
      await remove(runc.driver, fork, checkpoint)
    }
    await runc.driver.delete(id)
  })

  test('fork: has its own control group and limit, also without its source', async () => {
    if (!runc.driver.capabilities.fullCheckpoints) return
    const [source, checkpoint] = [await create(runc.driver), freshId('cp')]
    await runc.driver.checkpoint(source, checkpoint, 'full')
    const fork = await create(runc.driver, { memoryMb: 128, from: { checkpointId: checkpoint } })
    await guest(fork).spawn({ id: 'child', argv: ['/bin/sleep', '1000'], envs: {} })
    const assertOwnGroup = async (id: string, memoryMb: number) => {
      const pids = await runc.fixture.membersOf(id)
      assert.ok(pids.includes(await runc.fixture.pidOf(id)), `${id}: its guest is in its group`)
      assert.equal(pids.length, (await guest(id).processes()).length + 1, `${id}: nobody else is`)
      for (const pid of pids) assert.deepEqual(await foreignGroups(pid, runc.fixture.names.cgroup(id)), [], id)
      assert.equal(await memoryLimitOf(runc.fixture.names.cgroup(id)), memoryMb * 2 ** 20)
    }
    await assertOwnGroup(source, 256)
    await assertOwnGroup(fork, 128)
    await runc.driver.delete(source)
    await assertOwnGroup(fork, 128)
    await runc.driver.hibernate(fork)
    await runc.driver.wake(specOf(fork, { memoryMb: 128 }))
    await assertOwnGroup(fork, 128)
    await remove(runc.driver, fork, checkpoint)
    const left = (await runc.fixture.trace()).filter((line) => line.includes(source) || line.includes(fork))
    assert.deepEqual(left, [])
  })

  test('DNS forwarder: restarted when it dies', async () => {
    const pidFile = `${runc.fixture.names.runDir}/dnsmasq.pid`
    const pid = Number(await readFile(pidFile, 'utf8'))
    process.kill(pid, 'SIGKILL')
    await eventually(async () => {
      const next = Number(await readFile(pidFile, 'utf8').catch(() => '0'))
      return next !== pid && next > 0
    })
  })

  test('images: an upgrade does not change a sandbox', async () => {
    const images = await mkdtemp(`${tmpdir()}/atoll-images-`)
    for (const name of ['base', 'guest', 'hostd'])
      await symlink(await realpath(`${imageDir}/${name}`), `${images}/${name}`)
    const { dataDir } = runc.fixture.names
    const options = { dataDir, imageDir: images, subnet: runc.fixture.subnet }
    await runc.driver.close()
    const own = createOciDriver({ runtime: ociRuntimes.runc, ...options })
    await own.open(await knowing(runc.fixture))
    const id = await create(own)
    // This image folder has no CRIU.
    assert.equal(own.capabilities.fullCheckpoints, false)
    assert.match(own.capabilities.fullCheckpointsReason ?? '', /npm run setup/)
    await refuses(own.checkpoint(id, freshId('cp'), 'full'), 'full_checkpoint_unavailable')
    await own.hibernate(id)
    await unlink(`${images}/guest`)
    await own.wake(specOf(id))
    assert.equal(await succeed(runc.fixture.guest(own, id), 'echo fine'), 'fine')
    await refuses(create(own), 'unavailable')
    await own.delete(id)
    await own.close()
    await rm(images, { recursive: true })
    await runc.reopen()
  })

  test('open: a failure leaves running sandboxes alone', async () => {
    const id = await create(runc.driver)
    await guest(id).spawn({ id: 'counter', argv: ['/bin/sleep', '1000'], envs: {} })
    await runc.driver.close()
    const broken = createOciDriver({
      runtime: ociRuntimes.runc,
      dataDir: runc.fixture.names.dataDir,
      imageDir: '/no-such-folder',
      subnet: runc.fixture.subnet,
    })
    const known = await knowing(runc.fixture, { sandboxIds: [id] })
    await refuses(broken.open(known), 'unavailable', /setup/)
    assert.deepEqual((await runc.reopen({ sandboxIds: [id] })).running, [id])
    assert.equal((await guest(id).process('counter')).running, true)
    await runc.driver.delete(id)
  })

  test('reboot: sandboxes are dormant with their disks', async () => {
    const id = await create(runc.driver)
    await succeed(guest(id), 'echo kept > /root/file')
    const pid = await runc.fixture.pidOf(id)
    await runc.driver.close()
    await loseBoot(runc.fixture, pid)
    const report = await runc.reopen({ sandboxIds: [id] })
    assert.deepEqual([report.running, report.dormant, report.lost], [[], [id], []])
    await runc.driver.wake(specOf(id))
    assert.equal(await succeed(guest(id), 'cat /root/file'), 'kept')
    await runc.driver.delete(id)
  })

  test('servers: two run side by side on different subnets', async () => {
    const second = await makeRuncFixture()
    const other = second.makeDriver()
    await other.open(await knowing(second))
    const [one, two] = await Promise.all([create(runc.driver), create(other)])
    await other.delete(two)
    await other.close()
    assert.deepEqual(await second.trace(), [])
    await second.dispose()
    assert.equal((await shell(guest(one), 'true')).exitCode, 0)
    await runc.driver.delete(one)
  })

  test('subnet: one that the host uses is refused, and nothing is left', async () => {
    const second = await makeRuncFixture({ subnet: runc.fixture.subnet })
    const other = second.makeDriver()
    await refuses(other.open(await knowing(second)), 'unavailable', /ATOLL_SUBNET/)
    assert.deepEqual(await second.trace(), [])
    await second.dispose()
  })
})

/** The hierarchies in which a process is in another group than this one, as lines of `/proc/<pid>/cgroup`. */
async function foreignGroups(pid: number, group: string): Promise<string[]> {
  const lines = (await readFile(`/proc/${pid}/cgroup`, 'utf8')).trim().split('\n')
  return lines.filter((line) => line.split(':').slice(2).join(':') !== group)
}

async function memoryLimitOf(group: string): Promise<number> {
  const files = [`/sys/fs/cgroup${group}/memory.max`, `/sys/fs/cgroup/memory${group}/memory.limit_in_bytes`]
  const texts = await Promise.all(files.map((file) => readFile(file, 'utf8').catch(() => undefined)))
  return Number(texts.find((text) => text !== undefined))
}

/** A public address, behind this host alone, that answers each line with the address that it came from. */
async function makeInternet(): Promise<Outside> {
  const internet = new Outside()
  await internet.make()
  await internet.run('ip', 'route', 'add', 'default', 'via', internet.host)
  await internet.start(echoServer(internet.address, echoPort))
  return internet
}

/** What a reboot takes away: processes, mounts, links, rules, and here /run too. */
async function loseBoot(fixture: RuncFixture, pid: number): Promise<void> {
  const { runDir, hash } = fixture.names
  process.kill(pid, 'SIGKILL')
  for (const name of ['dnsmasq', 'lxcfs'])
    process.kill(Number(await readFile(`${runDir}/${name}.pid`, 'utf8')), 'SIGKILL')
  await eventually(async () => (await fixture.trace()).every((line) => !line.startsWith('process')))
  for (const mount of (await mountsOf(fixture.names)).toReversed()) await runFile('umount', ['--lazy', mount])
  await runFile('nft', ['delete', 'table', 'inet', `atoll_${hash}`])
  await runFile('ip', ['link', 'delete', `atl${hash}`])
  await rm(runDir, { recursive: true })
}
