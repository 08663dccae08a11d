/** What the driver finds of a running sandbox that is not what it should be, and what it makes of it. */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { describe, test } from 'node:test'
import { promisify } from 'node:util'
import { useRunc } from './driver-runc-host.ts'
import { create, freshId, remove, specOf, startProgram, succeed } from './driver-shell.ts'

const runFile = promisify(execFile)
const mebibyte = 2 ** 20

describe('the alignment of a runc sandbox', () => {
  const runc = useRunc()
  const { guest } = runc

  /** Writes to a file of its control group, of version 1 or 2. */
  async function write(id: string, ...choices: readonly (readonly [file: string, text: string])[]): Promise<void> {
    const group = runc.fixture.names.cgroup(id)
    for (const [file, text] of choices) {
      const [controller = ''] = file.split('.')
      for (const tree of ['', controller, 'cpu,cpuacct']) {
        const path = `/sys/fs/cgroup/${tree}${group}/${file}`
        if (existsSync(path)) return await writeFile(path, text)
      }
    }
    assert.fail(`no group has ${choices.map(([file]) => file).join(' or ')}`)
  }

  const found = async (spec: ReturnType<typeof specOf>) => {
    const { differences, keptMemoryMb } = await runc.driver.align(spec)
    return [differences.map(({ what, isMended }) => (isMended ? what : `${what}, not mended`)), keptMemoryMb]
  }
  const nothing = [[], undefined]

  test('align: nothing differs after a create, a resize, a fork, a wake, a restore in place and a restart of the server', async () => {
    const { driver } = runc
    const volume = freshId('vol')
    await driver.createVolume({ id: volume, sizeMb: 64 })
    const volumes = [{ id: volume, path: '/data/my volume#1', readOnly: true }]
    const id = await create(driver, { volumes })
    assert.deepEqual(await found(specOf(id, { volumes })), nothing)
    const sizes = { cpuCount: 0.37, memoryMb: 333, diskMb: 300, volumes }
    await driver.resize(specOf(id, sizes))
    assert.deepEqual(await found(specOf(id, sizes)), nothing)
    const checkpointId = freshId('cp')
    await driver.checkpoint(id, checkpointId, driver.capabilities.fullCheckpoints ? 'full' : 'disk_only')
    const fork = await create(driver, { from: { checkpointId }, cpuCount: 64, volumes })
    assert.deepEqual(await found(specOf(fork, { cpuCount: 64, volumes })), nothing)
    await driver.hibernate(id)
    assert.deepEqual(await found(specOf(id, sizes)), nothing)
    await driver.wake(specOf(id, { volumes }))
    assert.deepEqual(await found(specOf(id, { volumes })), nothing)
    await driver.restore(specOf(id, sizes), checkpointId)
    await driver.close()
    assert.deepEqual(
      (await runc.reopen({ sandboxIds: [id, fork], volumeIds: [volume] })).running.toSorted(),
      [id, fork].toSorted(),
    )
    assert.deepEqual(await found(specOf(id, sizes)), nothing)
    assert.deepEqual(await found(specOf(fork, { cpuCount: 64, volumes })), nothing)
    await remove(runc.driver, id, fork, checkpointId, volume)
  })

  test('align: each limit that is another is found where the kernel has it, and is right afterwards', async () => {
    const id = await create(runc.driver, { cpuCount: 1, memoryMb: 256, diskMb: 256 })
    const spec = specOf(id, { cpuCount: 1, memoryMb: 256, diskMb: 256 })
    await write(id, ['memory.max', String(300 * mebibyte)], ['memory.memsw.limit_in_bytes', String(300 * mebibyte)])
    assert.notDeepEqual(await found(spec), nothing)
    assert.deepEqual(await found(spec), nothing)
    await write(id, ['cpu.max', '70000 100000'], ['cpu.cfs_quota_us', '70000'])
    assert.deepEqual(await found(spec), [['processor time'], undefined])
    await write(id, ['cpu.max', 'max 100000'], ['cpu.cfs_quota_us', '-1'])
    assert.deepEqual(await found(spec), [['processor time'], undefined])
    await write(id, ['pids.max', 'max'])
    assert.deepEqual(await found(spec), [['processes'], undefined])
    const { names } = runc.fixture
    await writeFile(`${names.limitsDir(id)}/memory.max`, '1'.padEnd(32, '\n'))
    assert.deepEqual(await found(spec), [['limits that it sees'], undefined])
    await runFile('btrfs', ['qgroup', 'limit', '128M', `${names.poolDir}/sandboxes/${id}`])
    // The next server asks the kernel anew.
    await runc.driver.close()
    await runc.reopen({ sandboxIds: [id] })
    assert.deepEqual(await found(spec), [['disk'], undefined])
    assert.deepEqual(await found(spec), nothing)
    assert.match(
      (await runFile('btrfs', ['qgroup', 'show', '-r', '--raw', '-f', `${names.poolDir}/sandboxes/${id}`])).stdout,
      / 268435456\s/,
    )
    const files = await succeed(guest(id), 'cd /sys/fs/cgroup/sandbox; echo $(cat memory.max cpu.max disk.max)')
    assert.equal(files, `${256 * mebibyte} 100000 100000 ${256 * mebibyte}`)
    await remove(runc.driver, id)
  })

  test('align: sizes of a change that was cut off go back; memory in use stays, and its processes live', async () => {
    const id = await create(runc.driver, { memoryMb: 128 })
    const spec = specOf(id, { memoryMb: 128 })
    await runc.driver.resize({ ...spec, memoryMb: 512, cpuCount: 64 })
    assert.deepEqual(await found(spec), [['memory', 'processor time', 'processors', 'limits that it sees'], undefined])
    assert.deepEqual(await found(spec), nothing)
    await runc.driver.resize({ ...spec, memoryMb: 512, cpuCount: 64 })
    const hold = 'b = bytearray(200 << 20); print("held", flush=True); input()'
    await startProgram(guest(id), 'holder', '/usr/bin/python3', '-c', hold)
    const expected = [['memory, not mended', 'processor time', 'processors', 'limits that it sees'], 512]
    assert.deepEqual(await found(spec), expected)
    assert.deepEqual(await found({ ...spec, memoryMb: 512 }), nothing)
    assert.equal(await succeed(guest(id), 'nproc'), '1')
    // It has no limit at all, as after a change that nobody knows.
    await write(id, ['memory.max', 'max'], ['memory.memsw.limit_in_bytes', '-1'])
    await write(id, ['memory.max', 'max'], ['memory.limit_in_bytes', '-1'])
    const [differences, keptMb] = await found(spec)
    assert.deepEqual(
      [differences, Number(keptMb) > 200 && Number(keptMb) < 400],
      [['memory, not mended', 'limits that it sees'], true],
    )
    assert.equal((await guest(id).process('holder')).running, true)
    await remove(runc.driver, id)
  })

  test('align: a link that is gone is made again, and a volume that differs is told', async () => {
    const { driver } = runc
    const volume = freshId('vol')
    await driver.createVolume({ id: volume, sizeMb: 64 })
    const volumes = [{ id: volume, path: '/data', readOnly: false }]
    const id = await create(driver, { volumes })
    const spec = specOf(id, { volumes })
    const address = await succeed(guest(id), 'hostname -I')
    const pid = await runc.fixture.pidOf(id)
    await runFile('nsenter', ['--target', String(pid), '--net', 'ip', 'link', 'delete', 'eth0'])
    assert.deepEqual(await found(spec), [['network'], undefined])
    assert.equal(await succeed(guest(id), 'hostname -I'), address)
    await runFile('nsenter', ['--target', String(pid), '--net', 'ip', 'address', 'flush', 'dev', 'eth0'])
    assert.deepEqual(await found(spec), [['network'], undefined])
    assert.deepEqual(await found(spec), nothing)
    assert.deepEqual(await found({ ...spec, volumes: [] }), [['volumes, not mended'], undefined])
    assert.deepEqual(await found({ ...spec, volumes: [{ ...volumes[0]!, readOnly: true }] }), [
      ['volumes, not mended'],
      undefined,
    ])
    assert.match(await readFile(`/proc/${pid}/mountinfo`, 'utf8'), / \/data /)
    await remove(driver, id, volume)
  })
})
