import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { totalmem } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { Sandbox } from '@opencomputer/sdk/node'
import { HostNames } from '../../src/runtime/host-names.ts'
import { shownFiles } from '../../src/runtime/lxcfs.ts'
import { runcState } from '../../src/runtime/oci/runc.ts'
import { AtollServer } from './server.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

// Programs see the memory and processors of their sandbox, not of the machine, also when lxcfs was killed meanwhile.

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
/** A start while lxcfs is slow, as on a busy machine, takes the files of the host, which are replaced later. */
const seesItsSize = (sandbox: Sandbox, megabytes = 256) =>
  eventually(async () => (await memoryMb(sandbox)) === megabytes, {
    what: `a sandbox of ${megabytes} MB sees its size`,
  })
const { runDir } = new HostNames(server.dataDir)
/** A wake while lxcfs is slow takes the files of the host, and what holds them open keeps them until the next one. */
const wakesWithItsSize = (sandbox: Sandbox, megabytes: number) =>
  eventually(
    async () => {
      await sandbox.hibernate()
      await sandbox.wake()
      await readsOn(sandbox)
      return (await memoryMb(sandbox)) === megabytes
    },
    { what: 'a sandbox wakes with its size' },
  )
/** The process of lxcfs, as its pid file says. */
/** The server ends one that has been silent for ten seconds. */
const lxcfsSilentMs = 9_000
const lxcfs = async () => Number(await readFile(`${runDir}/lxcfs.pid`, 'utf8'))

/** Returns when lxcfs has ended. */
async function endLxcfs(): Promise<number> {
  const pid = await lxcfs()
  process.kill(pid, 'SIGKILL')
  await eventually(async () => !existsSync(`/proc/${pid}/exe`), { what: 'lxcfs has ended' })
  return pid
}

/** Starts a program that keeps all of the files open and reads from them; returns when it has. */
async function holdFiles(sandbox: Sandbox): Promise<void> {
  const program = `
import time
files = [open(name) for name in ${JSON.stringify(shownFiles)}]
while True:
    for file in files:
        file.seek(0)
        file.read()
    open("/tmp/read", "a").write("x")
    time.sleep(0.05)`
  await sandbox.exec.start('python3', { args: ['-c', program] })
  await readsOn(sandbox)
}

/** The kernel counts in hundredths, and the clock is set now and then. Wrong start times were wrong by the age of the machine. */
const clockSeconds = 10

/** `ps` subtracts what `/proc/uptime` tells from the start times of processes. */
async function tellsStartTimes(sandbox: Sandbox): Promise<void> {
  const before = Math.floor(Date.now() / 1000)
  const [startedAt = NaN, elapsed = NaN] = (
    await output(sandbox, 'date --date="$(ps -o lstart= -p $$)" +%s; ps -o etimes= -p $$')
  )
    .split('\n')
    .map(Number)
  const seconds = Math.ceil(Date.now() / 1000) - before
  assert.ok(
    startedAt >= before - clockSeconds && startedAt <= before + seconds + clockSeconds,
    `started ${startedAt - before} s after it was asked for`,
  )
  assert.ok(elapsed <= seconds + clockSeconds, `elapsed ${elapsed} s`)
}

async function readsOn(sandbox: Sandbox): Promise<void> {
  const before = await output(sandbox, 'wc -c < /tmp/read')
  await eventually(async () => (await output(sandbox, 'wc -c < /tmp/read')) !== before, { what: 'the files are read' })
}

test('free, top, Node and others see the size of the sandbox, also after scale, fork, hibernation and restarts', async () => {
  const sandbox = await started(512)
  await seesItsSize(sandbox, 512)
  assert.equal(await output(sandbox, 'node -p "os.totalmem() / 2 ** 20"'), '512')
  assert.equal(await output(sandbox, 'grep -c ^processor /proc/cpuinfo; cat /sys/devices/system/cpu/online'), '1\n0')
  assert.equal(await output(sandbox, 'tail -n +2 /proc/swaps'), '')
  await tellsStartTimes(sandbox)
  const watching = await sandbox.exec.start('sh', {
    args: ['-c', 'while sleep 0.05; do head -n 1 /proc/meminfo > /tmp/total; done'],
  })
  assert.ok(watching)
  await sandbox.scale({ memoryMB: 1024 })
  await eventually(async () => (await output(sandbox, 'cat /tmp/total')).includes(String(1024 * 1024)), {
    what: 'a program that ran before sees the new size',
  })
  const { id } = await sandbox.createCheckpoint('sizes')
  const fork = await Sandbox.createFromCheckpoint(id, connection)
  await seesItsSize(fork, 1024)
  await sandbox.hibernate()
  await sandbox.wake()
  await seesItsSize(sandbox, 1024)
  for (const one of [sandbox, fork]) await tellsStartTimes(one)
  await server.kill()
  await server.restart()
  for (const one of [sandbox, fork]) await seesItsSize(one, 1024)
  await Promise.all([sandbox.kill(), fork.kill()])
})

test('files that are open when memory is saved are open afterwards, also after a restart of the server', async () => {
  const [sandbox, other] = await Promise.all([started(512), started(256)])
  await holdFiles(sandbox)
  await sandbox.hibernate()
  await sandbox.wake()
  await readsOn(sandbox)
  // What a replacement has lost that was cut off is back once the new server has looked at both.
  const { pid } = runcState(`${runDir}/runc`, other.sandboxId) ?? assert.fail('it runs')
  const detach = 'import ctypes; assert ctypes.CDLL(None).umount2(b"/proc/meminfo", 2) == 0'
  await promisify(execFile)('nsenter', ['--target', String(pid), '--mount', 'python3', '-c', detach])
  await server.kill()
  await server.restart()
  await seesItsSize(other)
  await wakesWithItsSize(sandbox, 512)
  await Promise.all([sandbox.kill(), other.kill()])
})

test('lxcfs that was killed is started again, and running and sleeping sandboxes have its files', async () => {
  const sandboxes: Sandbox[] = []
  while (sandboxes.length < 40) sandboxes.push(...(await Promise.all([started(256), started(256)])))
  const [asleep, dumped] = sandboxes as [Sandbox, Sandbox, ...Sandbox[]]
  await asleep.hibernate()
  const before = await lxcfs()
  const dump = dumped.createCheckpoint('while it ends')
  await endLxcfs()
  await eventually(async () => ![0, before].includes(await lxcfs().catch(() => 0)), { what: 'another runs' })
  for (const sandbox of sandboxes.slice(1)) await seesItsSize(sandbox)
  // The dump went well or left nothing; another one goes well.
  const { id } = await dump
  const settled = await eventually(async () => {
    const found = (await dumped.listCheckpoints()).find((one) => one.id === id)
    assert.ok(found !== undefined && found.status !== 'processing')
    return found
  })
  const checkpointId = settled.status === 'ready' ? id : (await dumped.createCheckpoint('afterwards')).id
  const fork = await Sandbox.createFromCheckpoint(checkpointId, connection)
  await seesItsSize(fork)
  await asleep.wake()
  await seesItsSize(asleep)
  for (const sandbox of [...sandboxes, fork]) await sandbox.kill()
})

test('a sandbox starts while lxcfs does not answer, and sees its size once it does', async () => {
  const [woken, source] = await Promise.all([started(256), started(256)])
  const { id } = await source.createCheckpoint('slow')
  await holdFiles(woken)
  await woken.hibernate()
  const pid = await lxcfs()
  const stoppedAtMs = performance.now()
  process.kill(pid, 'SIGSTOP')
  // An answer counts as quick for a second.
  await sleep(1_100)
  const [fork] = await Promise.all([Sandbox.createFromCheckpoint(id, connection), woken.wake()])
  // Nothing has ended it: the starts did not wait for that. A server that has looked at it for ten seconds ends it.
  const stat = await readFile(`/proc/${pid}/stat`, 'latin1').catch(() => undefined)
  if (stat !== undefined || performance.now() - stoppedAtMs < lxcfsSilentMs) {
    assert.match(stat ?? 'it was ended', /^.*\) T/)
    process.kill(pid, 'SIGCONT')
  }
  await seesItsSize(fork)
  // It holds those of the host open, which stay: its memory can be saved.
  await wakesWithItsSize(woken, 256)
  await Promise.all([woken.kill(), source.kill(), fork.kill()])
})

test('lxcfs that answers nothing is ended, by the server that runs and by the next one', async () => {
  const [sandbox, asleep] = await Promise.all([started(256), started(256)])
  await asleep.hibernate()
  process.kill(await lxcfs(), 'SIGSTOP')
  // Whoever waits for an answer gets an error when it ends, but a start is made once more.
  const [read, other] = await Promise.all([sandbox.exec.run('cat /proc/meminfo'), started(256), asleep.wake()])
  assert.notEqual(read.exitCode, 0)
  for (const one of [sandbox, other, asleep]) await seesItsSize(one)
  await Promise.all([other.kill(), asleep.kill()])
  await server.kill()
  process.kill(await lxcfs(), 'SIGSTOP')
  await server.restart()
  await seesItsSize(sandbox)
  await sandbox.kill()
})

test('memory that was saved with lxcfs comes back without it, and memory that was saved without comes back with it', async () => {
  const [running, asleep] = await Promise.all([started(256), started(256)])
  // Each of the files has another length without lxcfs.
  await holdFiles(asleep)
  await asleep.hibernate()
  await writeFile(missing, '')
  await endLxcfs()
  const machineMb = Math.floor(totalmem() / 2 ** 20)
  for (const sandbox of [asleep, running]) {
    await eventually(async () => (await memoryMb(sandbox)) === machineMb, { what: 'it sees the size of the machine' })
  }
  assert.match(server.output, /sandboxes see the sizes of this machine, not their own: lxcfs: /)
  await readsOn(asleep)
  await asleep.hibernate()
  await rm(missing)
  await server.kill()
  await server.restart()
  await seesItsSize(running)
  await readsOn(asleep)
  await wakesWithItsSize(asleep, 256)
  await Promise.all([running.kill(), asleep.kill()])
})

test('a sandbox cannot take its files away, nor write to them', async () => {
  const sandbox = await started(256)
  await seesItsSize(sandbox)
  for (const command of ['umount /proc/meminfo', 'echo x > /proc/meminfo', 'mount --bind /etc/hosts /proc/meminfo']) {
    assert.notEqual((await sandbox.exec.run(command)).exitCode, 0, command)
  }
  assert.equal(await memoryMb(sandbox), 256)
  await sandbox.kill()
})
