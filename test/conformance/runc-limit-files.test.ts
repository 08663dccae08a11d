/** The files in which a runc sandbox sees its limits. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { useRunc } from './driver-runc-host.ts'
import { create, freshId, remove, shell, specOf, succeed } from './driver-shell.ts'

const mebibyte = 2 ** 20
const folder = '/sys/fs/cgroup/sandbox'

describe('the limits that a runc sandbox sees', () => {
  const runc = useRunc()
  const { guest } = runc

  /** Memory in MiB, processes, processor time and period, disk in MiB. */
  async function seen(id: string): Promise<unknown[]> {
    const text = await succeed(
      guest(id),
      `cd ${folder}; for name in memory pids cpu disk; do echo $(cat $name.max); done`,
    )
    const [memory, pids, cpu, disk] = text.split('\n')
    return [Number(memory) / mebibyte, Number(pids), cpu, Number(disk) / mebibyte]
  }

  test('limits: disk.current follows the samples of usage, and survives a hibernation', async () => {
    const { driver } = runc
    const id = await create(driver)
    const current = async () => Number(await succeed(guest(id), `cat ${folder}/disk.current`))
    const before = await current()
    await succeed(guest(id), 'dd if=/dev/urandom of=/root/big bs=1M count=20 conv=fsync 2>/dev/null')
    // The first usage of a server asks for the numbers of all disks; later ones wait a minute.
    let diskBytes: number | undefined
    while (diskBytes === undefined) diskBytes = (await driver.usage(id))?.diskBytes
    assert.equal(await current(), diskBytes)
    assert.ok(diskBytes - before >= 19 * mebibyte)
    await driver.hibernate(id)
    await driver.wake(specOf(id))
    assert.ok((await current()) >= 19 * mebibyte)
    await remove(driver, id)
  })

  test('limits: right after a create, a resize, a wake, a fork, a restore in place and a restart', async () => {
    const { driver } = runc
    const id = await create(driver, { cpuCount: 1, memoryMb: 256, diskMb: 256 })
    assert.deepEqual(await seen(id), [256, 4096, '100000 100000', 256])
    const isOneLine = async () => assert.equal(await succeed(guest(id), `cat ${folder}/*.max | wc -l`), '4')
    await isOneLine()
    await driver.resize(specOf(id, { cpuCount: 0.5, memoryMb: 1500, diskMb: 300 }))
    await driver.resize(specOf(id, { cpuCount: 0.5, memoryMb: 95, diskMb: 300 }))
    assert.deepEqual(await seen(id), [95, 4096, '50000 100000', 300])
    await isOneLine()
    // It holds a file open, and the next one is of another length.
    await guest(id).spawn({ id: 'holder', argv: ['/bin/sh', '-c', `exec sleep 1000 <${folder}/memory.max`], envs: {} })
    await driver.hibernate(id)
    await driver.wake(specOf(id, { memoryMb: 1500 }))
    assert.deepEqual(await seen(id), [1500, 4096, '100000 100000', 256])
    assert.equal((await guest(id).process('holder')).running, true)
    const checkpointId = freshId('cp')
    await driver.checkpoint(id, checkpointId, 'full')
    const from = { checkpointId }
    const fork = await create(driver, { from, cpuCount: 2, memoryMb: 400 })
    assert.deepEqual(await seen(fork), [400, 4096, '200000 100000', 256])
    await driver.restore(specOf(fork, { memoryMb: 500 }), checkpointId)
    assert.deepEqual(await seen(fork), [500, 4096, '100000 100000', 256])
    await driver.restart(specOf(fork, { memoryMb: 200, diskMb: 512 }))
    assert.deepEqual(await seen(fork), [200, 4096, '100000 100000', 512])
    assert.deepEqual(await seen(id), [1500, 4096, '100000 100000', 256])
    await remove(driver, id, fork, checkpointId)
  })

  test('limits: a prepared sandbox shows those of its owner', async () => {
    const id = freshId('sb')
    await runc.driver.prepare(specOf(id))
    await runc.driver.create(specOf(id, { cpuCount: 2, memoryMb: 384, diskMb: 512 }))
    assert.deepEqual(await seen(id), [384, 4096, '200000 100000', 512])
    await remove(runc.driver, id)
  })

  test('limits: nothing inside can change, remove or unmount them', async () => {
    const id = await create(runc.driver)
    const before = await seen(id)
    const attempts = ['echo 1 > memory.max', 'rm -f memory.max', 'touch new', 'chmod 777 memory.max']
    for (const attempt of [...attempts, 'mv memory.max pids.max', 'umount .', 'mount -o remount,rw,bind .']) {
      const { exitCode } = await shell(guest(id), `cd ${folder} && ! ( ${attempt} )`)
      assert.equal(exitCode, 0, attempt)
    }
    assert.deepEqual(await seen(id), before)
    assert.equal(await succeed(guest(id), `ls ${folder} | xargs`), 'cpu.max disk.current disk.max memory.max pids.max')
    await remove(runc.driver, id)
  })
})
