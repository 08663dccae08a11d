import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { isServiceError } from '../../src/errors.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import type { DriverUnderTest } from './driver.ts'
import { count, startLoad, createLoaded } from './driver-memory-load.ts'
import {
  create,
  driverTests,
  freshId,
  memoryLimitBytes,
  memoryTests,
  remove,
  specOf,
  startPython,
  startTidy,
  succeed,
  things,
} from './driver-shell.ts'

const mebibyte = 1024 * 1024

/** Restore in place, restart and resize. */
export function changeConformance(under: () => DriverUnderTest): void {
  const test = driverTests(under)
  const memoryTest = memoryTests(under)

  test('restore: to a disk checkpoint in place, running or hibernated', async ({ driver, guest, fixture }) => {
    const [id, cp] = [await create(driver), freshId('cp')]
    await succeed(guest(id), 'echo first > /workspace/a')
    const address = await succeed(guest(id), 'hostname -I')
    await driver.checkpoint(id, cp, 'disk_only')
    const before = await fixture.trace()
    await succeed(guest(id), 'echo second > /workspace/a; touch /workspace/b')
    await driver.restore(specOf(id), cp)
    assert.equal(await succeed(guest(id), 'cat /workspace/a; ls /workspace; hostname -I'), `first\na\n${address}`)
    await succeed(guest(id), 'echo third > /workspace/a')
    await driver.hibernate(id)
    await driver.restore(specOf(id), cp)
    await driver.restore(specOf(id), cp)
    assert.equal(await succeed(guest(id), 'cat /workspace/a; pgrep -c sleep || true'), 'first\n0')
    // A disk has a number after a restore.
    const unnumbered = (lines: string[]) => things(lines).map((line) => line.replace(new RegExp(`${id}\\.\\d+`), id))
    assert.deepEqual(unnumbered(await fixture.trace()), unnumbered(before))
    await driver.hibernate(id)
    await driver.wake(specOf(id))
    assert.equal(await succeed(guest(id), 'cat /workspace/a'), 'first')
    await remove(driver, id, cp)
  })

  memoryTest('restore: to a full checkpoint in place, with its memory', async ({ driver, guest, restart }) => {
    const [id, cp] = [await createLoaded(under()), freshId('cp')]
    await succeed(guest(id), 'echo first > /workspace/a')
    await driver.checkpoint(id, cp, 'full')
    for (let round = 0; round < 2; round += 1) {
      await succeed(guest(id), 'echo second > /workspace/a')
      assert.equal(await count(guest(id)), 2)
      await driver.restore(specOf(id), cp)
      assert.equal(await succeed(guest(id), 'cat /workspace/a'), 'first')
    }
    assert.deepEqual((await restart({ sandboxIds: [id], checkpointIds: [cp] })).running, [id])
    assert.equal(await count(under().guest(id)), 2)
    await remove(under().driver, id, cp)
  })

  test('restore: an unknown checkpoint changes nothing', async ({ driver, guest, fixture }) => {
    const id = await create(driver)
    await guest(id).spawn({ id: 'bystander', argv: ['/bin/sleep', '1000'], envs: {} })
    const before = await fixture.trace()
    await refuses(driver.restore(specOf(id), freshId('cp')), 'not_found')
    assert.deepEqual(await fixture.trace(), before)
    assert.equal((await guest(id).process('bystander')).running, true)
    await driver.delete(id)
  })

  memoryTest('restore: memory that is damaged or too large is refused before any change', async () => {
    const { driver, guest, fixture } = under()
    const [id, cp, large] = [await create(driver, { memoryMb: 512 }), freshId('cp'), freshId('cp')]
    await startLoad(guest(id))
    await driver.checkpoint(id, cp, 'full')
    const hold = `import os; b = os.urandom(200 << 20); print("held", flush=True); input()`
    await startPython(guest(id), 'holder', hold)
    await driver.checkpoint(id, large, 'full')
    await guest(id).release('holder')
    const mend = await fixture.spoilMemory(cp)
    await refuses(driver.restore(specOf(id), cp), 'memory_not_restorable')
    await refuses(driver.restore(specOf(id, { memoryMb: 192 }), large), 'conflict', /2\d\d MB/)
    assert.equal(await count(guest(id)), 2, 'the same server counts on')
    await mend()
    await driver.restore(specOf(id), cp)
    assert.equal(await count(guest(id)), 2)
    await remove(driver, id, cp, large)
  })

  memoryTest('restore: a failure leaves the present running, or asleep with its memory', async () => {
    const { driver, guest, fixture } = under()
    const [id, other, cp] = [await createLoaded(under()), freshId('sb'), freshId('cp')]
    await driver.checkpoint(id, cp, 'full')
    await succeed(guest(id), 'echo mine > /workspace/mine')
    assert.equal(await count(guest(id)), 2)
    const before = await fixture.trace()
    const mend = await fixture.garbleMemory(cp)
    const asBefore = (error: unknown) =>
      isServiceError(error, 'memory_not_restorable') && /processes go on/.test(error.message)
    for (const counted of [3, 4]) {
      await assert.rejects(driver.restore(specOf(id), cp), asBefore)
      assert.equal(await succeed(guest(id), 'cat /workspace/mine'), 'mine')
      assert.equal(await count(guest(id)), counted, 'the process of the present counts on')
    }
    // The runtime's own notes are of the last start.
    const others = (lines: string[]) => things(lines).filter((line) => !/\/(checkpoint|runc\.log)$/.test(line))
    assert.deepEqual(others(await fixture.trace()), others(before))
    await driver.hibernate(id)
    await refuses(driver.restore(specOf(id), cp), 'memory_not_restorable')
    await driver.wake(specOf(id))
    assert.equal(await count(guest(id)), 5)
    await refuses(driver.create(specOf(other, { from: { checkpointId: cp } })), 'memory_not_restorable')
    await mend()
    await driver.restore(specOf(id), cp)
    assert.equal(await succeed(guest(id), 'ls /workspace/mine 2>/dev/null || echo none'), 'none')
    assert.equal(await count(guest(id)), 2)
    await remove(driver, id, cp)
  })

  memoryTest('restore: a present that cannot be saved is told before any change', async () => {
    const { driver, guest, fixture } = under()
    const [id, cp] = [await createLoaded(under()), freshId('cp')]
    await driver.checkpoint(id, cp, 'full')
    // A multipath TCP socket.
    const program = `import socket; s = socket.socket(2, 1, 262); s.bind(("127.0.0.1", 5999)); s.listen(); print("ready", flush=True); input()`
    await startPython(guest(id), 'odd', program)
    const before = await fixture.trace()
    await refuses(driver.restore(specOf(id), cp), 'conflict', /multipath TCP.*power cycle/)
    assert.deepEqual(things(await fixture.trace()), things(before))
    assert.equal(await count(guest(id)), 2)
    await driver.restart(specOf(id))
    await driver.restore(specOf(id), cp)
    assert.equal(await count(guest(id)), 2)
    await remove(driver, id, cp)
  })

  test('restart: ends every process, keeps the disk and drops saved memory', async ({ driver, guest }) => {
    const id = await create(driver)
    for (const graceMs of [0, 3_000]) {
      await succeed(guest(id), 'rm -f /root/end')
      await startTidy(guest(id))
      await driver.restart(specOf(id, { memoryMb: 200 }), { graceMs })
      assert.equal(await succeed(guest(id), 'ls /root; pgrep -c sleep || true'), graceMs > 0 ? 'end\n0' : '0')
    }
    assert.equal(await memoryLimitBytes(guest(id)), 200 * mebibyte)
    await guest(id).spawn({ id: 'sleeper', argv: ['/bin/sleep', '1000'], envs: {} })
    await driver.hibernate(id)
    await driver.restart(specOf(id))
    assert.equal(await succeed(guest(id), 'pgrep -c sleep || true'), '0')
    await driver.delete(id)
  })

  test('resize: takes effect without a pause; less memory than is held is refused', async ({ driver, guest }) => {
    const id = await create(driver, { memoryMb: 256, diskMb: 64 })
    await guest(id).spawn({ id: 'bystander', argv: ['/bin/sleep', '1000'], envs: {} })
    await driver.resize(specOf(id, { memoryMb: 384, cpuCount: 2, diskMb: 256 }))
    assert.equal(await memoryLimitBytes(guest(id)), 384 * mebibyte)
    await succeed(guest(id), 'head -c 100M /dev/urandom > /root/big')
    const hold = `b = bytearray(150 << 20); print("held", flush=True); input()`
    await startPython(guest(id), 'holder', hold)
    await refuses(driver.resize(specOf(id, { memoryMb: 100 })), 'conflict')
    assert.equal(await memoryLimitBytes(guest(id)), 384 * mebibyte)
    await driver.resize(specOf(id, { memoryMb: 300 }))
    assert.equal(await memoryLimitBytes(guest(id)), 300 * mebibyte)
    for (const process of ['bystander', 'holder']) assert.equal((await guest(id).process(process)).running, true)
    await refuses(driver.resize(specOf(freshId('sb'))), 'not_found')
    await driver.delete(id)
  })

  test('resize: a sandbox that ends meanwhile is unavailable', async ({ driver, fixture }) => {
    for (const delayMs of [0, 5, 10, 20, 30]) {
      const id = await create(driver, { memoryMb: 256 })
      const crash = sleep(delayMs).then(() => fixture.crash(id))
      const [outcome] = await Promise.allSettled([driver.resize(specOf(id, { memoryMb: 384 })), crash])
      if (outcome.status === 'rejected')
        assert.ok(isServiceError(outcome.reason, 'unavailable'), String(outcome.reason))
      await driver.delete(id)
    }
  })
}
