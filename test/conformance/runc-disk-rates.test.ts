/** What a runc sandbox may do with the disk each second, as the kernel has it. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { Cgroups } from '../../src/runtime/cgroups/index.ts'
import type { DiskRates } from '../../src/runtime/cgroups/disk-rates.ts'
import { deviceOf } from '../../src/runtime/disk/index.ts'
import { knowing } from './driver-known.ts'
import { useRunc } from './driver-runc-host.ts'
import { create, freshId, remove, shell, specOf, succeed } from './driver-shell.ts'

const mebibyte = 2 ** 20
const diskRates = { readBytes: 300 * mebibyte, writeBytes: 200 * mebibyte, reads: 5000, writes: 4000 }
const without: DiskRates = { readBytes: Infinity, writeBytes: Infinity, reads: Infinity, writes: Infinity }

describe('the disk rates of a runc sandbox', () => {
  const runc = useRunc({ diskRates })
  const { guest } = runc
  const group = (id: string) => runc.fixture.names.cgroup(id)
  /** Of the pool as it is open now: a later one may have another. */
  const device = async () => (await deviceOf(runc.fixture.names.poolDir)) ?? assert.fail('the pool has no device')
  const inForce = async (id: string) => (await Cgroups.find()).diskRates(group(id), await device())
  const counted = async (id: string) => (await Cgroups.find()).diskBytes(group(id), await device()) ?? 0
  /** Opens the driver with other rates, as a server with another configuration does. */
  const reopen = async (rates: DiskRates | undefined, ...sandboxIds: string[]) => {
    await runc.driver.close()
    runc.driver = runc.fixture.makeDriver({ diskRates: rates })
    await runc.driver.open(await knowing(runc.fixture, { sandboxIds }))
  }

  test('disk rates: the kernel has them after a create, a resize, a wake, a fork, a restore in place and a restart', async () => {
    const { driver } = runc
    const id = await create(driver)
    const assertBounded = async (sandboxId: string, when: string) =>
      assert.deepEqual(await inForce(sandboxId), diskRates, when)
    await assertBounded(id, 'create')
    await driver.resize(specOf(id, { cpuCount: 0.5, memoryMb: 300 }))
    await assertBounded(id, 'resize')
    await driver.hibernate(id)
    await driver.wake(specOf(id))
    await assertBounded(id, 'wake')
    const checkpointId = freshId('cp')
    await driver.checkpoint(id, checkpointId, driver.capabilities.fullCheckpoints ? 'full' : 'disk_only')
    const fork = await create(driver, { from: { checkpointId } })
    await assertBounded(fork, 'fork')
    await driver.restore(specOf(fork), checkpointId)
    await assertBounded(fork, 'restore')
    await driver.restart(specOf(fork))
    await assertBounded(fork, 'restart')
    const prepared = freshId('sb')
    await driver.prepare(specOf(prepared))
    await driver.create(specOf(prepared, { memoryMb: 300 }))
    await assertBounded(prepared, 'a prepared one')
    await remove(driver, id, fork, prepared, checkpointId)
  })

  test('disk rates: direct writes and reads of a sandbox count for its own rates, and for those of no other', async () => {
    const [id, other] = [await create(runc.driver), await create(runc.driver)]
    const idle = await counted(other)
    const unused = await counted(id)
    await succeed(guest(id), 'dd if=/dev/zero of=/root/direct bs=1M count=8 oflag=direct 2>/dev/null')
    const written = await counted(id)
    assert.ok(written - unused >= 8 * mebibyte, `${written - unused} bytes written`)
    await succeed(guest(id), 'dd if=/root/direct of=/dev/null bs=1M iflag=direct 2>/dev/null')
    const read = (await counted(id)) - written
    assert.ok(read >= 8 * mebibyte, `${read} bytes read`)
    assert.ok((await counted(other)) - idle < 8 * mebibyte)
    await remove(runc.driver, id, other)
  })

  test('disk rates: an adopted sandbox gets those of the new configuration, which stay after a resize', async () => {
    const id = await create(runc.driver)
    const spec = specOf(id)
    assert.deepEqual((await runc.driver.align(spec)).differences, [])
    const lower = { readBytes: 3 * mebibyte, writeBytes: 2 * mebibyte, reads: 300, writes: 200 }
    await reopen(lower, id)
    const { differences } = await runc.driver.align(spec)
    assert.deepEqual(
      differences.map(({ what, isMended }) => [what, isMended]),
      [['disk rates', true]],
    )
    assert.deepEqual(await inForce(id), lower)
    assert.deepEqual((await runc.driver.align(spec)).differences, [])
    await runc.driver.resize(specOf(id, { memoryMb: 300 }))
    assert.deepEqual(await inForce(id), lower)
    await reopen(diskRates, id)
    await remove(runc.driver, id)
  })

  test('disk rates: a sandbox that started before there were any gets them', async () => {
    await reopen(undefined)
    const id = await create(runc.driver)
    assert.deepEqual((await inForce(id)) ?? without, without)
    await reopen(diskRates, id)
    assert.deepEqual(
      (await runc.driver.align(specOf(id))).differences.map(({ what }) => what),
      ['disk rates'],
    )
    assert.deepEqual(await inForce(id), diskRates)
    await remove(runc.driver, id)
  })

  test('shares: a sandbox has the weight and the lower rates of its share, which a resize and a wake leave to it', async () => {
    const { driver } = runc
    const id = await create(driver)
    const dividing = driver.shares ?? assert.fail('the driver divides nothing')
    const share = { weight: 125, diskBytesPerSecond: 100 * mebibyte, network: undefined }
    const shares = new Map([[id, share]])
    const bounded = { ...diskRates, readBytes: share.diskBytesPerSecond, writeBytes: share.diskBytesPerSecond }
    const weight = async () => (await Cgroups.find()).weight(group(id))
    assert.equal(await weight(), 1000)
    await dividing.set(shares)
    assert.deepEqual([await weight(), await inForce(id)], [125, bounded])
    await driver.resize(specOf(id, { memoryMb: 300 }))
    assert.deepEqual([await weight(), await inForce(id)], [125, bounded])
    assert.deepEqual((await driver.align(specOf(id, { memoryMb: 300 }))).differences, [])
    await driver.hibernate(id)
    await driver.wake(specOf(id))
    await dividing.set(shares)
    assert.deepEqual([await weight(), await inForce(id)], [125, bounded])
    const used = dividing.consumed(id)
    assert.ok(used !== undefined && used.cpuUs > 0)
    await dividing.set(new Map([[id, { ...share, weight: 1000, diskBytesPerSecond: 1024 ** 4 }]]))
    assert.deepEqual([await weight(), await inForce(id)], [1000, diskRates])
    await remove(driver, id)
    assert.equal(dividing.consumed(id), undefined)
    await dividing.set(shares)
  })

  test('disk rates: nothing inside can change them', async () => {
    const id = await create(runc.driver)
    const line = `${await device()} 1`
    const files = '/sys/fs/cgroup/io.max /sys/fs/cgroup/blkio/blkio.throttle.write_bps_device'
    await shell(guest(id), `for file in ${files}; do echo ${line} > $file; done`)
    assert.deepEqual(await inForce(id), diskRates)
    await remove(runc.driver, id)
  })
})
