/** What only a runc host shows: its network seen from both ends, its images, a reboot, a second server beside it. */
import assert from 'node:assert/strict'
import { execFile, spawn, type ChildProcess } from 'node:child_process'
import { mkdir, mkdtemp, readdir, readFile, realpath, rm, stat, symlink, unlink, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { once } from 'node:events'
import { tmpdir } from 'node:os'
import { after, before, describe, test } from 'node:test'
import { promisify } from 'node:util'
import { isServiceError } from '../../src/errors.ts'
import { createGuest } from '../../src/runtime/guest-client/index.ts'
import { createOciDriver, ociRuntimes } from '../../src/runtime/index.ts'
import type { RuntimeDriver } from '../../src/sandbox/ports/runtime-driver.ts'
import type { Guest } from '../../src/sandbox/ports/guest.ts'
import { imageDir } from '../support/images.ts'
import { knowing } from './driver-known.ts'
import { eventually, makeRuncFixture, runcSubnet, type RuncFixture } from './driver-runc-host.ts'
import { create, freshId, python, shell, specOf, succeed } from './driver-shell.ts'

const runFile = promisify(execFile)
/** Stands for an address of the internet: public, and routed by this host alone while the test runs. */
const internet = {
  namespace: 'atoll-test-net',
  link: 'atoll-test',
  host: '11.77.7.1',
  address: '11.77.7.2',
  port: 8_077,
}

describe('the runc driver on its host', () => {
  let fixture: RuncFixture
  let driver: RuntimeDriver
  const guest = (id: string): Guest => fixture.guest(driver, id)

  before(async () => {
    fixture = await makeRuncFixture()
    driver = fixture.makeDriver()
    await driver.open(await knowing(fixture))
  })

  after(async () => {
    await driver.close()
    await driver.open(await knowing(fixture))
    await driver.close()
    await fixture.dispose()
  })

  test('a sandbox reaches the internet under the host’s address, and the internet does not reach a sandbox', async () => {
    const outside = await makeInternet()
    try {
      const id = await create(driver)
      const told = await succeed(guest(id), `cat < /dev/tcp/${internet.address}/${internet.port}`)
      assert.equal(told, internet.host)
      const server = `import socket\ns = socket.create_server(("0.0.0.0", 80))\nwhile True: s.accept()[0].close()`
      await guest(id).spawn({ id: 'server', argv: ['/usr/bin/python3', '-c', server], envs: {} })
      assert.ok(await eventually(async () => (await guest(id).ports()).includes(80)))
      const address = await succeed(guest(id), 'hostname -I')
      assert.equal(await connects(address, 80, ['ip', 'netns', 'exec', internet.namespace]), false)
      assert.equal(await connects(driver.gateway().listenHost, 53, ['ip', 'netns', 'exec', internet.namespace]), false)
      assert.equal(await connects(address, 80, []), false, 'nor does the host itself')
      await driver.delete(id)
    } finally {
      await removeInternet(outside)
    }
  })

  test('a sandbox that opens thousands of connections runs into its own limit and into nobody else’s', async () => {
    const outside = await makeInternet()
    try {
      const [greedy, other] = [freshId('sb'), freshId('sb')]
      await Promise.all([driver.create(specOf(greedy)), driver.create(specOf(other))])
      const dial = `timeout 3 cat < /dev/tcp/${internet.address}/${internet.port}`
      assert.equal(await succeed(guest(greedy), dial), internet.host)
      await python(
        guest(greedy),
        `
import socket
for _ in range(5000):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.sendto(b"x", ("${internet.address}", 9))
    s.close()`,
      )
      assert.notEqual((await shell(guest(greedy), `timeout 3 bash -c '${dial}'`)).exitCode, 0)
      assert.equal(await succeed(guest(other), dial), internet.host)
      for (const id of [greedy, other]) await driver.delete(id)
    } finally {
      await removeInternet(outside)
    }
  })

  test('a sandbox that takes another address or another MAC is not heard', async () => {
    const { listenHost, listenPort } = driver.gateway()
    const gateway = createServer((connection) => connection.end())
    gateway.listen(listenPort, listenHost)
    await once(gateway, 'listening')
    const id = await create(driver)
    const inside = ['nsenter', `--net=/proc/${await fixture.pidOf(id)}/ns/net`]
    const own = await succeed(guest(id), 'hostname -I')
    assert.equal(await connects(listenHost, listenPort, inside, own), true)
    const stolen = '10.231.7.7'
    await runFile('nsenter', [...inside.slice(1), 'ip', 'address', 'add', `${stolen}/20`, 'dev', 'eth0'])
    assert.equal(await connects(listenHost, listenPort, inside, stolen), false)
    assert.equal(await connects(listenHost, listenPort, inside, own), true)
    await runFile('nsenter', [...inside.slice(1), 'ip', 'link', 'set', 'eth0', 'address', '02:00:00:00:00:07'])
    assert.equal(await connects(listenHost, listenPort, inside, own), false)
    await driver.delete(id)
    await new Promise((resolve) => gateway.close(resolve))
  })

  test('a restart waits for the last user of the root from before', async () => {
    const id = await create(driver)
    await succeed(guest(id), 'echo kept > /root/file')
    spawn('sleep', ['0.5'], { cwd: `${fixture.names.sandboxDir(id)}/root` })
    await driver.restart(specOf(id))
    assert.equal(await succeed(guest(id), 'cat /root/file'), 'kept')
    await driver.delete(id)
  })

  test('the root that a restore left mounted when it was cut off goes without the files in it', async () => {
    const id = await create(driver)
    await succeed(guest(id), 'echo kept > /root/file')
    await driver.hibernate(id)
    // Where runc has it for CRIU.
    const left = `${fixture.names.runDir}/runc/${id}/criu-root`
    await mkdir(left, { recursive: true })
    await runFile('mount', ['--bind', `${fixture.names.poolDir}/sandboxes/${id}`, left])
    await driver.wake(specOf(id))
    assert.equal(await succeed(guest(id), 'cat /root/file'), 'kept')
    await driver.delete(id)
    assert.equal((await readFile('/proc/mounts', 'utf8')).includes(left), false)
  })

  test('a server that is killed when the processes of a wake have gone on leaves nobody their memory on a newer disk', async () => {
    if (!driver.capabilities.fullCheckpoints) return
    const id = await create(driver)
    const loop = 'while :; do echo > /root/loop; sleep 0.05; done'
    await guest(id).spawn({ id: 'loop', argv: ['/bin/sh', '-c', loop], envs: { PATH: '/usr/bin' } })
    await succeed(guest(id), 'until test -e /root/loop; do sleep 0.02; done')
    // The wake waits for its answer until the server is killed.
    await fixture.hang(id)
    await driver.hibernate(id)
    const file = `${fixture.names.poolDir}/sandboxes/${id}/upper/root/loop`
    const writtenMs = async () => (await stat(file)).mtimeMs
    const savedMs = await writtenMs()
    await driver.close()
    const victim = await fixture.startVictim({ sandboxIds: [id], cycled: id })
    assert.ok(await eventually(async () => (await writtenMs()) > savedMs))
    await victim.kill()
    driver = fixture.makeDriver()
    assert.deepEqual((await driver.open(await knowing(fixture, { sandboxIds: [id] }))).dormant, [id])
    await driver.wake(specOf(id))
    assert.equal((await shell(guest(id), 'pgrep --full loop')).stdout, '', 'it was started anew')
    assert.ok((await writtenMs()) > savedMs)
    await driver.delete(id)
  })

  test('a sandbox hibernates again while what was saved of it before is still on its way out', async () => {
    if (!driver.capabilities.fullCheckpoints) return
    const id = await create(driver)
    await driver.hibernate(id)
    const saved = `${fixture.names.poolDir}/memory/saved`
    const [first = ''] = await readdir(saved)
    // Keeps its removal from coming to an end.
    const file = `${saved}/${first}/stays`
    await writeFile(file, '')
    await runFile('chattr', ['+i', file])
    await driver.wake(specOf(id))
    await driver.hibernate(id)
    await runFile('chattr', ['-i', file])
    await driver.wake(specOf(id))
    await driver.delete(id)
    assert.ok(await eventually(async () => (await readdir(saved)).length === 0))
  })

  test('what CRIU left mounted among the images when it was cut off goes with them, at a start of the server too', async () => {
    const id = await create(driver)
    await driver.hibernate(id)
    const leave = async (owner: string): Promise<string> => {
      const left = `${fixture.names.poolDir}/memory/runs/${owner}/.criu.cgyard.x`
      await mkdir(left, { recursive: true })
      await runFile('mount', ['-t', 'tmpfs', 'cgyard', left])
      await mkdir(`${left}/within`)
      await runFile('mount', ['-t', 'tmpfs', 'group', `${left}/within`])
      return left
    }
    const lefts = [await leave(id)]
    await driver.wake(specOf(id))
    await driver.hibernate(id)
    lefts.push(await leave(id), await leave(freshId('sb')))
    await driver.close()
    driver = fixture.makeDriver()
    assert.deepEqual((await driver.open(await knowing(fixture, { sandboxIds: [id] }))).dormant, [id])
    const mounts = await readFile('/proc/mounts', 'utf8')
    assert.deepEqual(
      lefts.filter((left) => mounts.includes(left)),
      [],
    )
    await driver.wake(specOf(id))
    await driver.delete(id)
  })

  test('what tells of the host and of other sandboxes is masked, in a fork and after a wake too, and tools do without it', async () => {
    const [id, fork, checkpoint] = [freshId('sb'), freshId('sb'), freshId('cp')]
    const demandMasked = async (sandboxId: string): Promise<void> => {
      for (const file of ['/proc/cmdline', '/proc/diskstats']) {
        assert.equal(await succeed(guest(sandboxId), `cat ${file}`), '', file)
      }
      const folders = ['/proc/pressure', '/sys/block', '/sys/devices/virtual/block', '/sys/fs/btrfs', '/sys/fs/ext4']
      for (const folder of folders) {
        assert.equal(await succeed(guest(sandboxId), `ls ${folder} 2>/dev/null || true`), '', folder)
      }
      await succeed(guest(sandboxId), 'node -e "process.exit(require(\'node:os\').cpus().length > 0 ? 0 : 1)"')
      await succeed(guest(sandboxId), 'ps aux && df && df /root && free && uptime')
    }
    await driver.create(specOf(id, { memoryMb: 512 }))
    await demandMasked(id)
    if (driver.capabilities.fullCheckpoints) {
      await driver.checkpoint(id, checkpoint, 'full')
      await driver.create(specOf(fork, { memoryMb: 512, from: { checkpointId: checkpoint } }))
      await demandMasked(fork)
      await driver.hibernate(fork)
      await driver.wake(specOf(fork, { memoryMb: 512 }))
      await demandMasked(fork)
      await driver.delete(fork)
      await driver.deleteCheckpoint(checkpoint)
    }
    await driver.delete(id)
  })

  test('a fork runs in a control group of its own under its own limit, also after its source is gone', async () => {
    if (!driver.capabilities.fullCheckpoints) return
    const [source, fork, checkpoint] = [freshId('sb'), freshId('sb'), freshId('cp')]
    await driver.create(specOf(source))
    await driver.checkpoint(source, checkpoint, 'full')
    await driver.create(specOf(fork, { memoryMb: 128, from: { checkpointId: checkpoint } }))
    await guest(fork).spawn({ id: 'child', argv: ['/bin/sleep', '1000'], envs: {} })
    const assertOwnGroup = async (id: string, memoryMb: number) => {
      const pids = await fixture.membersOf(id)
      assert.ok(pids.includes(await fixture.pidOf(id)), `${id}: its guest is in its group`)
      assert.equal(pids.length, (await guest(id).processes()).length + 1, `${id}: nobody else is`)
      for (const pid of pids) assert.deepEqual(await foreignGroups(pid, fixture.names.cgroup(id)), [], id)
      assert.equal(await memoryLimitOf(fixture.names.cgroup(id)), memoryMb * 2 ** 20)
    }
    await assertOwnGroup(source, 256)
    await assertOwnGroup(fork, 128)
    await driver.delete(source)
    await assertOwnGroup(fork, 128)
    await driver.hibernate(fork)
    await driver.wake(specOf(fork, { memoryMb: 128 }))
    await assertOwnGroup(fork, 128)
    await driver.delete(fork)
    await driver.deleteCheckpoint(checkpoint)
    const left = (await fixture.trace()).filter((line) => line.includes(source) || line.includes(fork))
    assert.deepEqual(left, [])
  })

  test('a DNS forwarder that dies is started again', async () => {
    const pidFile = `${fixture.names.runDir}/dnsmasq.pid`
    const pid = Number(await readFile(pidFile, 'utf8'))
    process.kill(pid, 'SIGKILL')
    const replaced = await eventually(async () => {
      const next = Number(await readFile(pidFile, 'utf8').catch(() => '0'))
      return next !== pid && next > 0
    })
    assert.ok(replaced)
  })

  test('an upgrade of the images does not change a sandbox', async () => {
    const images = await mkdtemp(`${tmpdir()}/atoll-images-`)
    for (const name of ['base', 'guest', 'hostd'])
      await symlink(await realpath(`${imageDir}/${name}`), `${images}/${name}`)
    const { dataDir } = fixture.names
    const options = { dataDir, imageDir: images, subnet: runcSubnet }
    await driver.close()
    const own = createOciDriver({ runtime: ociRuntimes.runc, ...options })
    await own.open(await knowing(fixture))
    const id = freshId('sb')
    await own.create(specOf(id))
    // This image folder has no CRIU.
    assert.equal(own.capabilities.fullCheckpoints, false)
    assert.match(own.capabilities.fullCheckpointsReason ?? '', /npm run setup/)
    const full = own.checkpoint(id, freshId('cp'), 'full')
    await assert.rejects(full, (error) => isServiceError(error, 'full_checkpoint_unavailable'))
    await own.hibernate(id)
    await unlink(`${images}/guest`)
    await own.wake(specOf(id))
    assert.equal(
      await succeed(
        createGuest((signal) => own.dial(id, signal)),
        'echo fine',
      ),
      'fine',
    )
    await assert.rejects(own.create(specOf(freshId('sb'))), (error) => isServiceError(error, 'unavailable'))
    await own.delete(id)
    await own.close()
    await rm(images, { recursive: true })
    driver = fixture.makeDriver()
    await driver.open(await knowing(fixture))
  })

  test('a start that fails leaves running sandboxes alone', async () => {
    const id = await create(driver)
    await guest(id).spawn({ id: 'counter', argv: ['/bin/sleep', '1000'], envs: {} })
    await driver.close()
    const broken = createOciDriver({
      runtime: ociRuntimes.runc,
      dataDir: fixture.names.dataDir,
      imageDir: '/no-such-folder',
      subnet: runcSubnet,
    })
    const known = await knowing(fixture, { sandboxIds: [id] })
    await assert.rejects(
      broken.open(known),
      (error) => isServiceError(error, 'unavailable') && /setup/.test(error.message),
    )
    driver = fixture.makeDriver()
    assert.deepEqual((await driver.open(known)).running, [id])
    assert.equal((await guest(id).process('counter')).running, true)
    await driver.delete(id)
  })

  test('after a reboot sandboxes are dormant with their disk', async () => {
    const id = await create(driver)
    await succeed(guest(id), 'echo kept > /root/file')
    const pid = await fixture.pidOf(id)
    await driver.close()
    await loseBoot(fixture, pid)
    driver = fixture.makeDriver()
    const report = await driver.open(await knowing(fixture, { sandboxIds: [id] }))
    assert.deepEqual([report.running, report.dormant, report.lost], [[], [id], []])
    await driver.wake(specOf(id))
    assert.equal(await succeed(guest(id), 'cat /root/file'), 'kept')
    await driver.delete(id)
  })

  test('two servers run side by side, each on a subnet of its own', async () => {
    const second = await makeRuncFixture({ subnet: '10.231.16.0/24' })
    const other = second.makeDriver()
    await other.open(await knowing(second))
    const [one, two] = [freshId('sb'), freshId('sb')]
    await Promise.all([driver.create(specOf(one)), other.create(specOf(two))])
    await other.delete(two)
    await other.close()
    assert.deepEqual(await second.trace(), [])
    await second.dispose()
    assert.equal((await shell(guest(one), 'true')).exitCode, 0)
    await driver.delete(one)
  })

  test('a subnet that the host uses is refused with what to do, and nothing is left', async () => {
    const second = await makeRuncFixture()
    const other = second.makeDriver()
    await assert.rejects(
      other.open(await knowing(second)),
      (error) => isServiceError(error, 'unavailable') && /ATOLL_SUBNET/.test(error.message),
    )
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

/** A network namespace behind this host in which something answers every connection with the address that it came from. */
async function makeInternet(): Promise<ChildProcess> {
  const { namespace, link, host, address, port } = internet
  await runFile('ip', ['netns', 'add', namespace])
  await runFile('ip', ['link', 'add', link, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', namespace])
  await runFile('ip', ['address', 'add', `${host}/24`, 'dev', link])
  await runFile('ip', ['link', 'set', link, 'up'])
  await runFile('ip', ['-n', namespace, 'address', 'add', `${address}/24`, 'dev', 'eth0'])
  await runFile('ip', ['-n', namespace, 'link', 'set', 'eth0', 'up'])
  await runFile('ip', ['-n', namespace, 'route', 'add', 'default', 'via', host])
  const program = `require('node:net').createServer((c) => c.end(c.remoteAddress)).listen(${port}, '${address}', () => console.log('up'))`
  const server = spawn('ip', ['netns', 'exec', namespace, process.execPath, '-e', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  await once(server.stdout, 'data')
  return server
}

async function removeInternet(server: ChildProcess): Promise<void> {
  const ended = once(server, 'exit')
  server.kill('SIGKILL')
  await ended
  await runFile('ip', ['link', 'delete', internet.link])
  await runFile('ip', ['netns', 'delete', internet.namespace])
}

/** Whether a connection is made, from the namespace that the prefix command enters. */
async function connects(address: string, port: number, prefix: readonly string[], from?: string): Promise<boolean> {
  const options = JSON.stringify({ host: address, port, ...(from === undefined ? {} : { localAddress: from }) })
  const program = `
    const socket = require('node:net').connect(${options})
    socket.on('connect', () => process.exit(0)).on('error', () => process.exit(1))
    setTimeout(() => process.exit(2), 1500)`
  const [command, ...rest] = [...prefix, process.execPath, '-e', program]
  return runFile(command, rest).then(
    () => true,
    () => false,
  )
}

/** What a reboot takes away: processes, mounts, links, rules, and here /run too. */
async function loseBoot(fixture: RuncFixture, pid: number): Promise<void> {
  const { runDir, hash } = fixture.names
  process.kill(pid, 'SIGKILL')
  process.kill(Number(await readFile(`${runDir}/dnsmasq.pid`, 'utf8')), 'SIGKILL')
  assert.ok(await eventually(async () => (await fixture.trace()).every((line) => !line.startsWith('process'))))
  const mounts = (await fixture.trace()).filter((line) => line.startsWith('mount ')).map((line) => line.slice(6))
  for (const mount of mounts.toReversed()) await runFile('umount', ['--lazy', mount])
  await runFile('nft', ['delete', 'table', 'inet', `atoll_${hash}`])
  await runFile('ip', ['link', 'delete', `atl${hash}`])
  await rm(runDir, { recursive: true })
}
