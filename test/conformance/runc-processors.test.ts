/** How many processors the programs in a runc sandbox see that they may use. */
import assert from 'node:assert/strict'
import { availableParallelism } from 'node:os'
import { describe, test } from 'node:test'
import { useRunc } from './driver-runc-host.ts'
import { create, freshId, remove, specOf, startProgram, succeed } from './driver-shell.ts'

const host = availableParallelism()

describe('the processors of a runc sandbox', () => {
  const runc = useRunc()
  const { guest } = runc
  const seen = async (id: string) => Number(await succeed(guest(id), 'nproc'))
  const listed = (id: string) => succeed(guest(id), 'grep Cpus_allowed_list /proc/self/status | cut -f 2')

  test('nproc: follows the limit through scaling, hibernation, forks, a restore in place and a restart', async () => {
    assert.ok(host >= 2, 'this test needs two processors')
    const id = await create(runc.driver, { cpuCount: 1 })
    await guest(id).spawn({ id: 'earlier', argv: ['/bin/sleep', '1000'], envs: {} })
    const ask = 'import os, sys; print(len(os.sched_getaffinity(int(sys.argv[1]))))'
    const asked = async () => Number(await succeed(guest(id), `python3 -c '${ask}' $(pgrep -x sleep)`))
    assert.deepEqual([await seen(id), await asked()], [1, 1])
    await runc.driver.resize(specOf(id, { cpuCount: 64 }))
    assert.deepEqual([await seen(id), await asked()], [host, host])
    await runc.driver.resize(specOf(id, { cpuCount: 0.5 }))
    assert.deepEqual([await seen(id), await asked()], [1, 1])
    await runc.driver.hibernate(id)
    await runc.driver.wake(specOf(id, { cpuCount: 64 }))
    assert.deepEqual([await seen(id), await asked()], [host, host])
    await runc.driver.hibernate(id)
    await runc.driver.wake(specOf(id, { cpuCount: 1 }))
    assert.deepEqual([await seen(id), await asked()], [1, 1])
    const checkpointId = freshId('cp')
    await runc.driver.checkpoint(id, checkpointId, 'full')
    const from = { checkpointId }
    const [narrow, wide] = [await create(runc.driver, { from }), await create(runc.driver, { from, cpuCount: 64 })]
    assert.deepEqual([await seen(narrow), await seen(wide)], [1, host])
    await runc.driver.restore(specOf(wide, { cpuCount: 1 }), checkpointId)
    assert.equal(await seen(wide), 1)
    await runc.driver.restart(specOf(wide, { cpuCount: 64 }))
    assert.equal(await seen(wide), host)
    await remove(runc.driver, id, narrow, wide, checkpointId)
  })

  test('nproc: a limit of memory that is refused leaves the processors as they were', async () => {
    const id = await create(runc.driver, { cpuCount: 1, memoryMb: 256 })
    const hold = 'b = bytearray(150 << 20); print("held", flush=True); input()'
    await startProgram(guest(id), 'holder', '/usr/bin/python3', '-c', hold)
    await assert.rejects(runc.driver.resize(specOf(id, { cpuCount: 64, memoryMb: 100 })), { code: 'conflict' })
    assert.equal(await seen(id), 1)
    await remove(runc.driver, id)
  })

  test('nproc: a prepared sandbox has it, and that of its owner afterwards', async () => {
    const [same, other] = [freshId('sb'), freshId('sb')]
    for (const id of [same, other]) {
      await runc.driver.prepare(specOf(id, { cpuCount: 1 }))
      assert.equal(await seen(id), 1)
    }
    await runc.driver.create(specOf(same, { cpuCount: 1 }))
    await runc.driver.create(specOf(other, { cpuCount: 64 }))
    assert.deepEqual([await seen(same), await seen(other)], [1, host])
    await remove(runc.driver, same, other)
  })

  test('processors: no two sandboxes share one while another is free, after ends and a restart of the server too', async () => {
    const ids: string[] = []
    for (let count = 0; count < host; count += 1) ids.push(await create(runc.driver, { cpuCount: 1 }))
    const lists = () => Promise.all(ids.map(listed))
    assert.equal(new Set(await lists()).size, host, String(await lists()))
    const [first = ''] = ids
    const before = await lists()
    await runc.driver.hibernate(first)
    const next = await create(runc.driver, { cpuCount: 1 })
    assert.equal(await listed(next), before[0])
    await runc.driver.wake(specOf(first))
    await remove(runc.driver, next)
    assert.equal(new Set(await lists()).size, host, String(await lists()))
    await runc.driver.close()
    await runc.reopen({ sandboxIds: ids })
    const last = ids.pop() ?? ''
    const freed = await listed(last)
    await remove(runc.driver, last)
    const after = await create(runc.driver, { cpuCount: 1 })
    assert.equal(await listed(after), freed)
    await remove(runc.driver, after, ...ids)
  })
})
