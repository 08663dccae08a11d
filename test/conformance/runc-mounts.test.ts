/** Mounts of sandboxes and what others of the host do with them: namespaces that copy them, processes that hold them. */
import assert from 'node:assert/strict'
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile, stat, statfs } from 'node:fs/promises'
import { afterEach, describe, test } from 'node:test'
import { promisify } from 'node:util'
import { createOciDriver, ociRuntimes } from '../../src/runtime/index.ts'
import { imageDir } from '../support/images.ts'
import { knowing } from './driver-known.ts'
import { type RuncFixture, useRunc } from './driver-runc-host.ts'
import { create, python, remove, shell, specOf, succeed } from './driver-shell.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

const runFile = promisify(execFile)
const gibibyte = 1024 ** 3
const holders: ChildProcess[] = []

/** A mount namespace with a copy of all mounts that there are now, which hears of no later change. */
const copyMounts = () => hold('unshare', ['--mount', '--propagation', 'private', 'sleep', '600'])

/** A process of the host in the mount namespace of a sandbox, as of an operator who looks around. */
const holdRoot = (pid: number) => hold('nsenter', [`--mount=/proc/${pid}/ns/mnt`, 'sleep', '600'])

/** A process of the host whose working directory is a folder. */
const holdFolder = (cwd: string) => hold('sleep', ['600'], { cwd })

/** Runs a program that becomes `sleep` once it is where it belongs, and returns when it is. */
async function hold(command: string, args: readonly string[], options: { cwd?: string } = {}): Promise<void> {
  const holder = spawn(command, args, options)
  holders.push(holder)
  const isSleeping = async () => (await readFile(`/proc/${holder.pid}/comm`, 'utf8')) === 'sleep\n'
  await eventually(isSleeping)
}

async function letGo(): Promise<void> {
  for (const holder of holders.splice(0)) {
    const ended = once(holder, 'exit')
    holder.kill('SIGKILL')
    await ended
  }
}

describe('mounts of the runc driver', () => {
  const runc = useRunc()
  const { guest } = runc

  afterEach(letGo)

  const diskOf = async (id: string): Promise<string> => {
    const text = await readFile(`${runc.fixture.names.dataDir}/sandboxes/${id}.json`, 'utf8')
    return (JSON.parse(text) as { disk?: string }).disk ?? id
  }
  const disks = async (id: string): Promise<string[]> => {
    const { stdout } = await runFile('ls', [`${runc.fixture.names.poolDir}/sandboxes`])
    return stdout.split('\n').filter((name) => name.startsWith(id))
  }
  const counter = async (id: string) => {
    const program = `
import itertools, time
for n in itertools.count():
    open("/root/count", "w").write(str(n))
    time.sleep(0.01)`
    await guest(id).spawn({ id: 'counter', argv: ['/usr/bin/python3', '-c', program], envs: {} })
    await eventually(async () => (await shell(guest(id), 'test -s /root/count')).exitCode === 0)
  }
  const counts = async (id: string) => assert.equal((await guest(id).process('counter')).running, true)

  test('run folder: a private mount that is removed with the last sandbox', async () => {
    const { stdout } = await runFile('findmnt', ['--noheadings', '--output', 'PROPAGATION', runc.fixture.names.runDir])
    assert.equal(stdout.trim(), 'private')
    await runc.driver.close()
    await assert.rejects(stat(runc.fixture.names.runDir), { code: 'ENOENT' })
    await runc.reopen()
  })

  test('disk: a namespace that copied all mounts does not hold it', async () => {
    const id = await create(runc.driver)
    await copyMounts()
    await succeed(guest(id), 'echo kept > /root/file')
    await runc.driver.restart(specOf(id))
    await copyMounts()
    await counter(id)
    await runc.driver.hibernate(id)
    await runc.driver.wake(specOf(id))
    await counts(id)
    await copyMounts()
    await runc.driver.checkpoint(id, `cp-${id}`, 'full')
    await runc.driver.restore(specOf(id), `cp-${id}`)
    const fork = await create(runc.driver, { from: { checkpointId: `cp-${id}` } })
    await copyMounts()
    for (const one of [id, fork]) {
      await counts(one)
      await runc.driver.hibernate(one)
      await runc.driver.wake(specOf(one))
      await counts(one)
      assert.equal(await succeed(guest(one), 'cat /root/file'), 'kept')
    }
    assert.equal(await diskOf(fork), fork)
    await remove(runc.driver, id, fork, `cp-${id}`)
    await eventually(async () => !(await deletedDisks(runc.fixture)))
  })

  test('disk: one that a process of the host holds is replaced by a copy', async () => {
    const id = await create(runc.driver)
    await counter(id)
    await succeed(guest(id), 'echo kept > /root/file; stat -c %i /root/file > /root/inode')
    await holdRoot(await runc.fixture.pidOf(id))
    await runc.driver.hibernate(id)
    await runc.driver.wake(specOf(id))
    await counts(id)
    assert.equal(await diskOf(id), `${id}.1`)
    assert.deepEqual(await disks(id), [`${id}.1`])
    await holdFolder(`/proc/${await runc.fixture.pidOf(id)}/root/tmp`)
    await runc.driver.restart(specOf(id))
    assert.equal(await diskOf(id), `${id}.2`)
    assert.equal(await succeed(guest(id), 'cat /root/file'), 'kept')
    assert.equal(await succeed(guest(id), 'stat -c %i /root/file'), await succeed(guest(id), 'cat /root/inode'))
    await runc.driver.checkpoint(id, `cp-${id}`, 'full')
    await holdRoot(await runc.fixture.pidOf(id))
    await runc.driver.restore(specOf(id), `cp-${id}`)
    assert.deepEqual(await disks(id), [await diskOf(id)])
    const full = await shell(guest(id), 'dd if=/dev/zero of=/root/big bs=1M count=400 conv=fsync')
    assert.match(full.stderr, /Disk quota exceeded/)
    await succeed(guest(id), 'rm /root/big')
    await remove(runc.driver, id, `cp-${id}`)
    assert.ok(await deletedDisks(runc.fixture), 'what is held stays')
    await letGo()
    await eventually(async () => !(await deletedDisks(runc.fixture)), { what: 'and goes with who holds it' })
  })

  test('disk: a copy keeps hard links of lower layers, and file watches', async () => {
    const source = await create(runc.driver)
    await succeed(guest(source), 'mkdir -p /root/d/e && cd /root/d && echo one > a && ln a e/b && ln a c')
    await runc.driver.checkpoint(source, `cp-${source}`, 'disk_only')
    const id = await create(runc.driver, { from: { checkpointId: `cp-${source}` } })
    await succeed(guest(id), 'echo two > /root/d/a && touch /root/d/e/new && mv /root/d/c /root/d/e/c')
    const watch = `
const { watch, writeFileSync } = require('node:fs')
watch('/root/d', () => writeFileSync('/root/seen', 'yes'))
writeFileSync('/root/ready', 'yes')
setInterval(() => undefined, 1000)`
    await guest(id).spawn({ id: 'watch', argv: ['/usr/local/bin/node', '-e', watch], envs: {} })
    await eventually(async () => (await shell(guest(id), 'test -s /root/ready')).exitCode === 0)
    await holdRoot(await runc.fixture.pidOf(id))
    await runc.driver.hibernate(id)
    await runc.driver.wake(specOf(id))
    assert.equal(await diskOf(id), `${id}.1`)
    assert.equal(await succeed(guest(id), 'cat /root/d/e/b /root/d/e/c; ls /root/d/e'), 'two\ntwo\nb\nc\nnew')
    await succeed(guest(id), 'rm -f /root/seen; echo three > /root/d/e/b; touch /root/d/watched')
    assert.equal(await succeed(guest(id), 'cat /root/d/a'), 'three')
    assert.equal(await succeed(guest(id), 'stat -c "%i %h" /root/d/a /root/d/e/b | sort -u | wc -l'), '1')
    await eventually(async () => (await shell(guest(id), 'test -s /root/seen')).exitCode === 0)
    await runc.driver.restart(specOf(id))
    assert.equal(await succeed(guest(id), 'cat /root/d/a /root/d/e/b'), 'three\nthree')
    await python(guest(id), 'import shutil; shutil.rmtree("/root/d")')
    await remove(runc.driver, id, source, `cp-${source}`)
  })

  test('pool: one that a process still holds is reopened on its device, and grows', async () => {
    const id = await create(runc.driver)
    await succeed(guest(id), 'echo kept > /root/file')
    await holdFolder(runc.fixture.names.poolDir)
    await runc.driver.hibernate(id)
    await runc.driver.close()
    const { names, subnet } = runc.fixture
    const { dataDir, poolDir } = names
    const file = `${dataDir}/pool.img`
    const devices = async () =>
      (await runFile('losetup', ['--noheadings', '--output', 'NAME', '--associated', file])).stdout
    const device = await devices()
    assert.match(device, /^\/dev\/loop\d+\n$/, 'the process has it')
    const sizeBytes = async () => {
      const { blocks, bsize } = await statfs(poolDir)
      return blocks * bsize
    }
    const bytes = (await stat(file)).size + gibibyte
    const options = { dataDir, imageDir, subnet, diskPoolBytes: bytes }
    runc.driver = createOciDriver({ runtime: ociRuntimes.runc, ...options })
    await runc.driver.open(await knowing(runc.fixture, { sandboxIds: [id] }))
    assert.equal(await devices(), device)
    assert.equal(await sizeBytes(), bytes)
    await runc.driver.wake(specOf(id))
    assert.equal(await succeed(guest(id), 'cat /root/file'), 'kept')
    await runc.driver.delete(id)
    await letGo()
    await runc.driver.close()
    await eventually(async () => (await devices()) === '')
    await runc.reopen()
  })
})

/** Whether the pool has subvolumes that were deleted and are not gone. */
async function deletedDisks({ names }: RuncFixture): Promise<boolean> {
  await runFile('btrfs', ['filesystem', 'sync', names.poolDir])
  const { stdout } = await runFile('btrfs', ['subvolume', 'list', '-d', names.poolDir])
  return stdout !== ''
}
