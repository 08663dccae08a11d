import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { isServiceError } from '../../src/errors.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { roundsOf, someOf } from '../../src/lib/testing/thorough.ts'
import type { DriverUnderTest } from './driver.ts'
import { count, startLoad, createLoaded } from './driver-memory-load.ts'
import { create, freshId, memoryTests, remove, shell, specOf, startPython, succeed, things } from './driver-shell.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

const rounds = roundsOf(3, 10)
const busyRounds = roundsOf(6, 20)
/** Moments at which a server that wakes, checkpoints and hibernates one sandbox is killed. */
const killAfterMs = someOf([40, 110, 180, 250, 320, 390, 460, 530, 600, 670])
/** Moments at which a delete comes after the start of another step. */
const deleteAfterMs = [0, 20, 60, 120, 200]
/** Moments at which a wake is no longer wanted. */
const cutOffAfterMs = someOf([0, 20, 40, 60, 80, 100, 120, 140, 160])

/** Faults of a dump. A driver's way of restoring does not change them. */
export function dumpFaultConformance(under: () => DriverUnderTest): void {
  const test = memoryTests(under)

  test('dump: a refused one says why and the sandbox runs on', async ({ driver, guest, fixture }) => {
    const [id, cp] = [await createLoaded(under()), freshId('cp')]
    const before = await fixture.trace()
    // A multipath TCP socket.
    const program = `import socket; s = socket.socket(2, 1, 262); s.bind(("127.0.0.1", 5999)); s.listen(); print("ready", flush=True); input()`
    await startPython(guest(id), 'odd', program)
    await refuses(driver.checkpoint(id, cp, 'full'), 'conflict', /multipath TCP/)
    await refuses(driver.hibernate(id), 'conflict', /multipath TCP/)
    assert.deepEqual(things(await fixture.trace()), things(before))
    assert.equal(await count(guest(id)), 2)
    await guest(id).release('odd')
    await driver.checkpoint(id, cp, 'full')
    await driver.checkpoint(id, `${cp}-2`, 'full')
    assert.equal(await count(guest(id)), 3)
    await remove(driver, id, cp, `${cp}-2`)
  })

  test('dump: a sandbox that starts programs without pause is saved', async ({ driver, guest }) => {
    const id = await create(driver)
    // This shell lends its memory to each child until that runs its program (vfork): a moment at which CRIU hangs.
    await guest(id).spawn({ id: 'busy', argv: ['/bin/sh', '-c', 'while :; do /bin/true; done'], envs: {} })
    for (let round = 0; round < busyRounds; round += 1) {
      const cp = freshId('cp')
      await driver.checkpoint(id, cp, 'full')
      await driver.deleteCheckpoint(cp)
    }
    await driver.delete(id)
  })

  test('dump: a vfork that never ends is refused and the sandbox runs on', async ({ driver, guest }) => {
    const id = await create(driver)
    const program = 'import ctypes, time; print("ready", flush=True); ctypes.CDLL(None).vfork() or time.sleep(1000)'
    await startPython(guest(id), 'lender', program)
    // It says so before it is: once its child is there, it has lent its memory.
    await succeed(guest(id), 'until test $(pgrep -c python3) = 2; do sleep 0.02; done')
    await refuses(driver.checkpoint(id, freshId('cp'), 'full'), 'conflict', /vfork/)
    assert.equal(await succeed(guest(id), 'echo alive'), 'alive')
    await driver.delete(id)
  })

  test('dump: connections wait, none fails, and owners are notified', async ({ driver, guest }) => {
    const [id, cp] = [await createLoaded(under()), freshId('cp')]
    const told: unknown[] = []
    const polite = await driver.dial(id)
    polite.on('freeze', (reason) => {
      told.push(reason)
      polite.destroy()
    })
    const deaf = await driver.dial(id)
    const done = new AbortController()
    const flood = async () => {
      while (!done.signal.aborted) assert.match((await guest(id).hello()).version, /./)
    }
    const clients = Array.from({ length: 20 }, flood)
    await driver.checkpoint(id, cp, 'full')
    await driver.checkpoint(id, `${cp}-2`, 'full')
    done.abort()
    await Promise.all(clients)
    assert.deepEqual(told, ['checkpoint'])
    assert.equal(deaf.destroyed, true)
    const waiting = driver.hibernate(id)
    let refusals = 0
    while (refusals === 0) {
      const dialed = await driver.dial(id).catch((error: unknown) => assert.ok(isServiceError(error, 'unavailable')))
      if (dialed === undefined) refusals += 1
      else dialed.destroy()
    }
    await waiting
    await remove(driver, id, cp, `${cp}-2`)
  })

  test('dump: a full disk is no_capacity and the sandbox runs on', async ({ driver, guest, fixture }) => {
    const [id, cp] = [await create(driver, { memoryMb: 512 }), freshId('cp')]
    await startLoad(guest(id))
    const hold = `import os; b = os.urandom(200 << 20); print("held", flush=True); input()`
    await startPython(guest(id), 'holder', hold)
    const free = await fixture.fillDisk()
    try {
      await refuses(driver.checkpoint(id, cp, 'full'), 'no_capacity')
      await refuses(driver.hibernate(id), 'no_capacity')
    } finally {
      await free()
    }
    // The driver looks at its disk now and then: on a busy machine the file system has the space before the driver knows.
    await eventually(async () => driver.disk?.().state === 'ok')
    assert.equal(await count(guest(id)), 2)
    await driver.checkpoint(id, cp, 'full')
    await remove(driver, id, cp)
  })
}

/** Faults of a restore, and of all steps together: nothing is lost or left behind. */
export function memoryFaultConformance(under: () => DriverUnderTest): void {
  const test = memoryTests(under)

  test('wake: a failed one keeps the memory and can be repeated', async ({ driver, guest, fixture }) => {
    const id = await createLoaded(under())
    await driver.hibernate(id)
    const before = await fixture.trace()
    const mend = await fixture.spoilMemory(id)
    for (let attempt = 0; attempt < 2; attempt += 1) {
      await refuses(driver.wake(specOf(id)), 'memory_not_restorable')
    }
    await mend()
    assert.deepEqual(things(await fixture.trace()), things(before))
    await driver.wake(specOf(id))
    assert.equal(await count(guest(id)), 2)
    await driver.delete(id)
  })

  test('wake: memory that is refused stays as a checkpoint while the sandbox starts on its disk', async (world) => {
    const { driver, guest, fixture, restart } = world
    const [id, cp, fork] = [await createLoaded(under()), freshId('cp'), freshId('sb')]
    await succeed(guest(id), 'echo mine > /workspace/mine')
    await driver.hibernate(id)
    assert.equal(driver.hasMemory(id), true)
    const mend = await fixture.garbleMemory(id)
    await refuses(driver.wake(specOf(id)), 'memory_not_restorable')
    assert.equal(driver.hasMemory(id), true)
    assert.equal(driver.isMemoryKept(id, cp), false)
    await driver.checkpoint(id, cp, 'full')
    assert.equal(driver.isMemoryKept(id, cp), true)
    await refuses(driver.create(specOf(fork, { from: { checkpointId: cp } })), 'memory_not_restorable')
    // The checkpoint has a link of the image.
    await mend()
    await driver.restart(specOf(id))
    assert.deepEqual([driver.hasMemory(id), driver.isMemoryKept(id, cp)], [false, false])
    assert.equal(await succeed(guest(id), 'cat /workspace/mine; pgrep -c node || true'), 'mine\n0')
    await succeed(guest(id), 'echo newer > /workspace/mine')
    await restart({ sandboxIds: [id], checkpointIds: [cp] })
    await under().driver.create(specOf(fork, { from: { checkpointId: cp } }))
    assert.equal(await count(under().guest(fork)), 2)
    assert.equal(await succeed(under().guest(fork), 'cat /workspace/mine'), 'mine', 'the disk of that moment')
    await remove(under().driver, id, fork, cp)
  })

  test('wake: one that is aborted at any moment loses no memory', async ({ driver, guest }) => {
    const id = await createLoaded(under())
    for (const [round, delayMs] of cutOffAfterMs.entries()) {
      await driver.hibernate(id)
      const controller = new AbortController()
      const wake = driver.wake(specOf(id), controller.signal)
      const cutOff = assert.rejects(wake, /no longer wanted/).catch(() => wake)
      await sleep(delayMs)
      controller.abort(new Error('no longer wanted'))
      await cutOff
      await driver.wake(specOf(id))
      assert.equal(await count(guest(id)), 2 + round, `cut off after ${delayMs} ms`)
    }
    await driver.delete(id)
  })

  test('wake: a failure after the fence drops the memory and says so', async ({ driver, guest, fixture }) => {
    const id = await createLoaded(under())
    // Its guest stands still after the wake too, while the loop writes.
    await fixture.hang(id)
    await driver.hibernate(id)
    await refuses(driver.wake(specOf(id)), 'unavailable', /anew on its disk/)
    await driver.wake(specOf(id))
    assert.equal((await shell(guest(id), 'pgrep node')).stdout, '', 'it was started anew')
    await succeed(guest(id), 'test -e /workspace/loop')
    await startLoad(guest(id))
    await driver.hibernate(id)
    await driver.wake(specOf(id))
    assert.equal(await count(guest(id)), 2)
    await driver.delete(id)
  })

  test('delete: during any other operation leaves nothing', async ({ driver, fixture }) => {
    const [source, cp] = [await createLoaded(under()), freshId('cp')]
    await driver.checkpoint(source, cp, 'full')
    const before = await fixture.trace()
    const fork = (id: string, signal?: AbortSignal) => driver.create(specOf(id, { from: { checkpointId: cp } }), signal)
    const steps: Record<string, (id: string) => Promise<unknown>> = {
      checkpoint: (id) => driver.checkpoint(id, `${id}-cp`, 'full'),
      hibernate: (id) => driver.hibernate(id),
      wake: (id) => driver.hibernate(id).then(() => driver.wake(specOf(id))),
      restore: (id) => driver.restore(specOf(id), cp),
      restart: (id) => driver.restart(specOf(id)),
    }
    for (const [name, step] of Object.entries(steps)) {
      for (const delayMs of someOf(deleteAfterMs)) {
        const id = freshId('sb')
        await fork(id)
        const running = step(id).catch(() => undefined)
        await sleep(delayMs)
        await driver.delete(id)
        await running
        await driver.deleteCheckpoint(`${id}-cp`)
        assert.deepEqual(things(await fixture.trace()), things(before), `${name}, deleted after ${delayMs} ms`)
      }
    }
    for (const delayMs of someOf(deleteAfterMs)) {
      const [id, controller] = [freshId('sb'), new AbortController()]
      const creation = fork(id, controller.signal).catch(() => undefined)
      await sleep(delayMs)
      controller.abort(new Error('no longer wanted'))
      await driver.delete(id)
      await creation
      assert.deepEqual(things(await fixture.trace()), things(before), `create, aborted after ${delayMs} ms`)
    }
    const racing = Array.from({ length: 5 }, () => freshId('sb'))
    const forks = racing.map((id) => fork(id).catch((error: unknown) => assert.ok(isServiceError(error, 'not_found'))))
    await driver.deleteCheckpoint(cp)
    await Promise.all(forks)
    await remove(driver, source, ...racing)
  })

  test('server: killed during a dump or a wake loses no memory', async ({ driver, fixture, restart }) => {
    const before = await fixture.trace()
    const id = await createLoaded(under())
    await driver.hibernate(id)
    for (const [round, delayMs] of killAfterMs.entries()) {
      await under().driver.close()
      const victim = await fixture.startVictim({ sandboxIds: [id], cycled: id })
      await sleep(delayMs)
      await victim.kill()
      const report = await restart({ sandboxIds: [id] })
      assert.deepEqual(report.lost, [])
      await under().driver.wake(specOf(id))
      assert.equal(await count(under().guest(id)), 2 + round, `killed after ${delayMs} ms`)
      await succeed(under().guest(id), 'hostname -I | grep .')
    }
    await under().driver.delete(id)
    assert.deepEqual(await fixture.trace(), before)
  })

  test(`host: ${rounds} rounds of all operations leave it as before`, async ({ driver, guest, fixture }) => {
    const before = await fixture.trace()
    for (let round = 0; round < rounds; round += 1) {
      const [source, cp] = [await create(driver), freshId('cp')]
      await succeed(guest(source), 'head -c 1M /dev/urandom > /root/file')
      await driver.checkpoint(source, cp, 'full')
      await driver.delete(source)
      const fork = await create(driver, { from: { checkpointId: cp } })
      await driver.hibernate(fork)
      await driver.deleteCheckpoint(cp)
      await driver.wake(specOf(fork))
      assert.equal((await shell(guest(fork), 'test $(stat -c %s /root/file) = 1048576')).exitCode, 0)
      await driver.delete(fork)
    }
    assert.deepEqual(await fixture.trace(), before)
  })
}
