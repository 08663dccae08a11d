/** What the runc driver tells of a sandbox's usage, by the kernel's own counters. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { useRunc } from './driver-runc-host.ts'
import { create, remove, startPython, succeed } from './driver-shell.ts'

const mebibyte = 2 ** 20

describe('the usage of a runc sandbox', () => {
  const runc = useRunc()
  const { guest } = runc

  test('usage: processor time, memory, disk, traffic and processes grow with what a sandbox does', async () => {
    const id = await create(runc.driver)
    const usage = async () => (await runc.driver.usage(id)) ?? assert.fail('it runs')
    const before = await usage()
    await succeed(guest(id), 'dd if=/dev/urandom of=/root/big bs=1M count=20 2>/dev/null')
    await succeed(guest(id), 'for i in $(seq 100000); do :; done')
    // Nobody answers at the address: what is sent counts all the same.
    await succeed(guest(id), 'head -c 5000 /dev/zero > /dev/udp/8.8.8.8/9 || true')
    await startPython(
      guest(id),
      'memory',
      'b = bytearray(64 << 20); import time; print("made", flush=True); time.sleep(1000)',
    )
    while (!String((await guest(id).output('memory')).stdout).includes('made')) await new Promise(setImmediate)
    const after = await usage()
    assert.ok(after.cpuUs - before.cpuUs > 20_000, `${after.cpuUs - before.cpuUs} us`)
    assert.ok(
      after.memoryBytes - before.memoryBytes >= 60 * mebibyte,
      `${after.memoryBytes - before.memoryBytes} bytes`,
    )
    assert.ok(after.memoryBytes < 256 * mebibyte)
    assert.ok((after.diskBytes ?? 0) - (before.diskBytes ?? 0) >= 19 * mebibyte, `${after.diskBytes} bytes of disk`)
    assert.ok(after.networkSentBytes - before.networkSentBytes >= 5000, `${after.networkSentBytes} bytes sent`)
    assert.equal(after.processCount, before.processCount + 1)
    await remove(runc.driver, id)
    assert.equal(await runc.driver.usage(id), undefined)
  })

  test('usage: a sandbox that hibernates uses nothing, and one that is unknown neither', async () => {
    const id = await create(runc.driver)
    await runc.driver.hibernate(id)
    assert.equal(await runc.driver.usage(id), undefined)
    assert.equal(await runc.driver.usage('sb-0000000000000000'), undefined)
    await remove(runc.driver, id)
  })
})
