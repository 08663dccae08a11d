import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { bootId } from '../../src/runtime/process.ts'
import type { DriverUnderTest } from './driver.ts'
import { count, startLoad, createLoaded } from './driver-memory-load.ts'
import { freshId, memoryTests, remove, shell, specOf, things } from './driver-shell.ts'

const otherBoot = 'another boot of the machine'

/** Saved memory meets no disk of another moment, and no processor that lacks what its programs use. */
export function memoryFenceConformance(under: () => DriverUnderTest): void {
  const test = memoryTests(under)

  /** Returns when a record says so, which is the last write of it. */
  const isFlushed = async (id: string): Promise<void> => {
    while ((await under().fixture.memoryOf(id))?.unflushed !== undefined) await sleep(20)
  }

  /** A hibernated sandbox, counting, as it is found by a start after its record was changed. */
  const found = async (fence: { resuming?: string; unflushed?: string }) => {
    const { driver, fixture, restart } = under()
    const id = await createLoaded(under())
    await driver.hibernate(id)
    await driver.close()
    await fixture.changeMemory(id, fence)
    const report = await restart({ sandboxIds: [id] })
    assert.ok(report.dormant.includes(id))
    return { id, isForgotten: report.forgotten.includes(id) }
  }

  test('fence: a restore begun in this boot is tried again, without its fence', async () => {
    const { id, isForgotten } = await found({ resuming: bootId() })
    assert.equal(isForgotten, false)
    assert.equal((await under().fixture.memoryOf(id))?.resuming, undefined)
    await under().driver.wake(specOf(id))
    assert.equal(await count(under().guest(id)), 2)
    await under().driver.delete(id)
  })

  for (const [state, fence] of [
    ['that another boot was restoring', { resuming: otherBoot }],
    ['that another boot had not flushed', { unflushed: otherBoot }],
  ] as const) {
    test(`fence: memory ${state} is dropped; the disk stays`, async () => {
      const { id, isForgotten } = await found(fence)
      assert.equal(isForgotten, true)
      await under().driver.wake(specOf(id))
      const guest = under().guest(id)
      assert.equal((await shell(guest, 'pgrep node')).stdout, '', 'it was started anew')
      assert.equal((await shell(guest, 'test -e /workspace/loop')).exitCode, 0, 'on its disk')
      await startLoad(guest)
      await under().driver.hibernate(id)
      await under().driver.wake(specOf(id))
      assert.equal(await count(guest), 2, 'and can be saved as any other')
      await under().driver.delete(id)
    })
  }

  test('fence: a wake that fails before the processes go on leaves none', async ({ driver, fixture }) => {
    const id = await createLoaded(under())
    await driver.hibernate(id)
    const mend = await fixture.spoilMemory(id)
    await refuses(driver.wake(specOf(id)), 'memory_not_restorable')
    await mend()
    const memory = await fixture.memoryOf(id)
    assert.deepEqual([memory === undefined, memory?.resuming], [false, undefined])
    await driver.delete(id)
  })

  test('flush: saved memory is unflushed until it is on the disk', async ({ driver, fixture }) => {
    const [id, cp] = [await createLoaded(under()), freshId('cp')]
    await driver.checkpoint(id, cp, 'full')
    assert.equal((await fixture.memoryOf(cp))?.unflushed, bootId())
    // The flush that a hibernation asks for is for all.
    await driver.hibernate(id)
    for (const saved of [id, cp]) await isFlushed(saved)
    await remove(driver, id, cp)
  })

  test('flush: a checkpoint that another boot had not flushed is lost', async ({ driver, fixture, restart }) => {
    const [id, cut, kept] = [await createLoaded(under()), freshId('cp'), freshId('cp')]
    for (const cp of [cut, kept]) await driver.checkpoint(id, cp, 'full')
    await driver.close()
    assert.equal((await fixture.memoryOf(kept))?.unflushed, undefined, 'a server that ends has flushed')
    await fixture.changeMemory(cut, { unflushed: otherBoot })
    const report = await restart({ sandboxIds: [id], checkpointIds: [cut, kept] })
    assert.deepEqual(report.lostCheckpoints, [cut])
    const reasons = report.quarantined.map((item) => [item.id, item.reason])
    assert.deepEqual(reasons, [[cut, 'damaged']])
    const fork = freshId('sb')
    await under().driver.create(specOf(fork, { from: { checkpointId: kept } }))
    assert.equal(await count(under().guest(fork)), 2)
    await remove(under().driver, id, fork, kept)
    await under().driver.close()
    await fixture.changeMemory(cut, { unflushed: bootId() })
    const back = await restart({ checkpointIds: [cut] })
    assert.deepEqual(back.takenBack, [cut])
    await under().driver.deleteCheckpoint(cut)
  })

  test('processor: memory of one with other instructions is refused', async ({ driver, guest, fixture }, t) => {
    const [id, cp, fork] = [await createLoaded(under()), freshId('cp'), freshId('sb')]
    await driver.checkpoint(id, cp, 'full')
    const mends = [await fixture.otherProcessor(cp)]
    if (mends[0] === undefined) return t.diagnostic('CRIU notes no processor on this machine')
    const before = await fixture.trace()
    const refused = ['full_checkpoint_unavailable', /processor lacks instructions/] as const
    await refuses(driver.create(specOf(fork, { from: { checkpointId: cp } })), ...refused)
    await refuses(driver.restore(specOf(id), cp), ...refused)
    assert.equal(await count(guest(id)), 2, 'it has run on')
    assert.deepEqual(things(await fixture.trace()), things(before))
    await driver.hibernate(id)
    mends.push(await fixture.otherProcessor(id))
    for (let attempt = 0; attempt < 2; attempt += 1) await refuses(driver.wake(specOf(id)), ...refused)
    for (const mend of mends) await mend?.()
    await driver.wake(specOf(id))
    assert.equal(await count(guest(id)), 3)
    await driver.create(specOf(fork, { from: { checkpointId: cp } }))
    assert.equal(await count(guest(fork)), 2)
    await remove(driver, id, fork, cp)
  })

  test('processor: memory without a recorded one is restored', async ({ driver, fixture, restart }) => {
    const id = await createLoaded(under())
    await driver.hibernate(id)
    await isFlushed(id)
    await fixture.forgetProcessor(id)
    await restart({ sandboxIds: [id] })
    await under().driver.wake(specOf(id))
    assert.equal(await count(under().guest(id)), 2)
    await under().driver.delete(id)
  })
}
