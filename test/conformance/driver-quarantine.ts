import assert from 'node:assert/strict'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { create, driverTests, freshId, remove, specOf, succeed } from './driver-shell.ts'
import { knowing } from './driver-known.ts'
import type { DriverUnderTest } from './driver.ts'

const nothing = { sandboxIds: [], checkpointIds: [] }
const many = { mayQuarantineMany: true }

/** Only what the caller calls abandoned is ever removed by a start. */
export function quarantineConformance(under: () => DriverUnderTest): void {
  const test = driverTests(under)

  test('quarantine: a start with an empty database is refused before any change', async () => {
    const { driver, guest, fixture } = under()
    const [running, sleeping, cp] = [await create(driver), await create(driver), freshId('cp')]
    await guest(running).spawn({ id: 'counter', argv: ['/bin/sleep', '1000'], envs: {} })
    await driver.hibernate(sleeping)
    await driver.checkpoint(running, cp, 'disk_only')
    await driver.close()
    const words = new RegExp(`3 sandboxes and checkpoints .* does not know .*${running}`)
    await refuses(fixture.makeDriver().open({ ...nothing, abandoned: nothing }), 'unavailable', words)

    const report = await under().restart({ sandboxIds: [running, sleeping], checkpointIds: [cp] })
    assert.deepEqual([report.running, report.dormant, report.lostCheckpoints], [[running], [sleeping], []])
    assert.deepEqual([report.quarantined, report.takenBack, report.removed], [[], [], []])
    const next = under()
    assert.equal((await next.guest(running).process('counter')).running, true)
    await remove(next.driver, running, sleeping, cp)
  })

  test('quarantine: unknown sandboxes are stopped and kept until known again', async () => {
    const { driver, guest, fixture, restart } = under()
    const before = await fixture.trace()
    const [running, sleeping, source] = [await create(driver), await create(driver), await create(driver)]
    const cp = freshId('cp')
    await succeed(guest(source), 'echo kept > /root/source')
    await driver.checkpoint(source, cp, 'disk_only')
    await driver.delete(source)
    const fork = await create(driver, { from: { checkpointId: cp } })
    for (const id of [running, sleeping, fork]) await succeed(guest(id), `echo ${id} > /root/file`)
    for (const id of [sleeping, fork]) await driver.hibernate(id)

    const wrong = await restart({ ...nothing, abandoned: nothing }, many)
    const moved = wrong.quarantined.map(({ id, reason }) => `${id} ${reason}`)
    assert.deepEqual(moved.toSorted(), [running, sleeping, fork, cp].map((id) => `${id} unknown`).toSorted())
    assert.deepEqual([wrong.running, wrong.dormant, wrong.removed], [[], [], []])
    const meanwhile = under()
    for (const id of [running, sleeping, fork]) await assert.rejects(meanwhile.driver.dial(id))
    const stranger = await create(meanwhile.driver)
    await meanwhile.driver.delete(stranger)

    const ids = [running, sleeping, fork]
    const right = await restart({ sandboxIds: ids, checkpointIds: [cp] })
    assert.deepEqual(right.takenBack.toSorted(), [...ids, cp].toSorted())
    assert.deepEqual([right.dormant.toSorted(), right.lost, right.lostCheckpoints], [ids.toSorted(), [], []])
    const next = under()
    for (const id of ids) {
      await next.driver.wake(specOf(id))
      assert.equal(await succeed(next.guest(id), 'cat /root/file'), id)
    }
    assert.equal(await succeed(next.guest(fork), 'cat /root/source'), 'kept')
    await remove(next.driver, ...ids, cp)
    assert.deepEqual(await fixture.trace(), before)
  })

  test('quarantine: an unreadable record keeps its disk and layers, even when their sources are deleted', async () => {
    const { driver, guest, fixture, restart } = under()
    const before = await fixture.trace()
    const [source, cp] = [await create(driver), freshId('cp')]
    await succeed(guest(source), 'echo below > /root/below')
    await driver.checkpoint(source, cp, 'disk_only')
    const fork = await create(driver, { from: { checkpointId: cp } })
    await succeed(guest(fork), 'echo above > /root/above')
    await driver.hibernate(fork)
    await driver.close()
    const mend = await fixture.spoilRecord(fork)
    const known = { sandboxIds: [source, fork], checkpointIds: [cp] }
    await assert.rejects(fixture.makeDriver().open(await knowing(fixture, known)), /record cannot be read/)
    const report = await restart(known, many)
    assert.deepEqual([report.running, report.lost], [[source], [fork]])
    const fault = 'it is damaged'
    assert.deepEqual(report.quarantined, [{ kind: 'sandbox', id: fork, reason: 'unreadable', fault }])
    await remove(under().driver, source, cp)
    assert.deepEqual((await restart({ sandboxIds: [fork] })).lost, [fork])

    await mend()
    const mended = await restart({ sandboxIds: [fork] })
    assert.deepEqual([mended.takenBack, mended.dormant], [[fork], [fork]])
    const next = under()
    await next.driver.wake(specOf(fork))
    assert.equal(await succeed(next.guest(fork), 'cat /root/below /root/above'), 'below\nabove')
    await next.driver.delete(fork)
    assert.deepEqual(await fixture.trace(), before)
  })
}
