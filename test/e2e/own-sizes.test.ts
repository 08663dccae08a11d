import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { totalmem } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { Sandbox } from '@opencomputer/sdk/node'
import { HostNames } from '../../src/runtime/host-names.ts'
import { eventually } from '../../src/runtime/guest-client/testing/guest-process.ts'
import { AtollServer } from './server.ts'

// Programs see the memory, processors and uptime of their sandbox, not of the machine, also when lxcfs was killed meanwhile.

/** First in the server's PATH: the lxcfs of this machine, unless there is a file `missing` beside it. */
const programs = await mkdtemp('/var/tmp/atoll-programs-')
after(() => rm(programs, { recursive: true }))
const missing = join(programs, 'missing')
await writeFile(join(programs, 'lxcfs'), `#!/bin/sh\n[ ! -e ${missing} ] && exec /usr/bin/lxcfs "$@"\n`, {
  mode: 0o755,
})
const server = await AtollServer.startForFile({ env: { PATH: `${programs}:${process.env['PATH']}` } })
const connection = { apiUrl: server.url, apiKey: server.key }

async function started(memoryMB: number): Promise<Sandbox> {
  const { sandboxID } = (await server.json('POST', '/api/sandboxes', { memoryMB })) as { sandboxID: string }
  return await Sandbox.connect(sandboxID, connection)
}

const output = async (sandbox: Sandbox, command: string) => (await sandbox.exec.run(command)).stdout.trim()
const memoryMb = async (sandbox: Sandbox) => Number(await output(sandbox, `free -m | awk '/^Mem/{print $2}'`))
const seesItsSize = (sandbox: Sandbox) =>
  eventually('a sandbox of 256 MB sees its size', async () => (await memoryMb(sandbox)) === 256)
/** The process of lxcfs, as its pid file says. */
const lxcfs = async () => Number(await readFile(`${new HostNames(server.dataDir).runDir}/lxcfs.pid`, 'utf8'))

test('free, top, Node and others see the size of the sandbox, also after scale, fork, hibernation and restarts', async () => {
  const sandbox = await started(512)
  assert.equal(await memoryMb(sandbox), 512)
  assert.equal(await output(sandbox, 'node -p "os.totalmem() / 2 ** 20"'), '512')
  assert.equal(await output(sandbox, 'grep -c ^processor /proc/cpuinfo; cat /sys/devices/system/cpu/online'), '1\n0')
  assert.equal(await output(sandbox, 'tail -n +2 /proc/swaps'), '')
  assert.ok(Number(await output(sandbox, 'cut -d. -f1 /proc/uptime')) < 60)
  const watching = await sandbox.exec.start('sh', {
    args: ['-c', 'while sleep 0.05; do head -n 1 /proc/meminfo > /tmp/total; done'],
  })
  assert.ok(watching)
  await sandbox.scale({ memoryMB: 1024 })
  await eventually('a program that ran before sees the new size', async () =>
    (await output(sandbox, 'cat /tmp/total')).includes(String(1024 * 1024)),
  )
  const { id } = await sandbox.createCheckpoint('sizes')
  const fork = await Sandbox.createFromCheckpoint(id, connection)
  assert.equal(await memoryMb(fork), 1024)
  await sandbox.hibernate()
  await sandbox.wake()
  assert.equal(await memoryMb(sandbox), 1024)
  await server.kill()
  await server.restart()
  for (const one of [sandbox, fork]) assert.equal(await memoryMb(one), 1024)
  await Promise.all([sandbox.kill(), fork.kill()])
})

test('a file that is open when memory is saved is open afterwards', async () => {
  const sandbox = await started(512)
  await sandbox.exec.start('sh', {
    args: ['-c', 'exec 3< /proc/meminfo; while sleep 0.1; do head -n 1 <&3 > /tmp/read; done'],
  })
  await eventually('it is read', async () => (await output(sandbox, 'cat /tmp/read')).startsWith('MemTotal'))
  await sandbox.hibernate()
  await sandbox.wake()
  assert.equal(await memoryMb(sandbox), 512)
  await sandbox.kill()
})

test('lxcfs that was killed is started again, and running and sleeping sandboxes have its files', async () => {
  const sandboxes: Sandbox[] = []
  while (sandboxes.length < 40) sandboxes.push(...(await Promise.all([started(256), started(256)])))
  const [asleep, dumped] = sandboxes as [Sandbox, Sandbox, ...Sandbox[]]
  await asleep.hibernate()
  const before = await lxcfs()
  const dump = dumped.createCheckpoint('while it ends').then(
    ({ id }) => id,
    () => undefined,
  )
  process.kill(before, 'SIGKILL')
  await eventually('another runs', async () => (await lxcfs().catch(() => before)) !== before)
  for (const sandbox of sandboxes.slice(1)) await seesItsSize(sandbox)
  // The dump went well or left nothing; another one goes well.
  const checkpointId = (await dump) ?? (await dumped.createCheckpoint('afterwards')).id
  const fork = await Sandbox.createFromCheckpoint(checkpointId, connection)
  assert.equal(await memoryMb(fork), 256)
  await asleep.wake()
  assert.equal(await memoryMb(asleep), 256)
  for (const sandbox of [...sandboxes, fork]) await sandbox.kill()
})

test('lxcfs that answers nothing is ended, by the server that runs and by the next one', async () => {
  const sandbox = await started(256)
  process.kill(await lxcfs(), 'SIGSTOP')
  // Whoever waits for an answer gets an error when it ends.
  assert.notEqual((await sandbox.exec.run('cat /proc/meminfo')).exitCode, 0)
  await seesItsSize(sandbox)
  await server.kill()
  process.kill(await lxcfs(), 'SIGSTOP')
  await server.restart()
  await seesItsSize(sandbox)
  await sandbox.kill()
})

test('memory that was saved with lxcfs comes back without it, and memory that was saved without comes back with it', async () => {
  const [running, asleep] = await Promise.all([started(256), started(256)])
  await asleep.hibernate()
  await writeFile(missing, '')
  process.kill(await lxcfs(), 'SIGKILL')
  const machineMb = Math.floor(totalmem() / 2 ** 20)
  for (const sandbox of [asleep, running]) {
    await eventually('it sees the size of the machine', async () => (await memoryMb(sandbox)) === machineMb)
  }
  assert.match(server.output, /sandboxes see the sizes of this machine, not their own: lxcfs: /)
  await asleep.hibernate()
  await rm(missing)
  await server.kill()
  await server.restart()
  for (const sandbox of [asleep, running]) await seesItsSize(sandbox)
  await Promise.all([running.kill(), asleep.kill()])
})

test('a sandbox cannot take its files away, nor write to them', async () => {
  const sandbox = await started(256)
  for (const command of ['umount /proc/meminfo', 'echo x > /proc/meminfo', 'mount --bind /etc/hosts /proc/meminfo']) {
    assert.notEqual((await sandbox.exec.run(command)).exitCode, 0, command)
  }
  assert.equal(await memoryMb(sandbox), 256)
  await sandbox.kill()
})
