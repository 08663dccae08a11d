import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { isServiceError } from '../../src/errors.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { someOf } from '../../src/lib/testing/thorough.ts'
import type { SandboxExit } from '../../src/sandbox/ports/runtime-driver.ts'
import type { Guest } from '../../src/sandbox/ports/guest.ts'
import { knowing } from './driver-known.ts'
import type { DriverUnderTest } from './driver.ts'
import {
  create,
  driverTests,
  freshId,
  memoryLimitBytes,
  remove,
  sendLine,
  shell,
  specOf,
  startTidy,
  succeed,
} from './driver-shell.ts'

const parallelCreates = 20
/** Moments at which a create is aborted, from before its first step to after its last. */
const abortAfterMs = [0, ...someOf([5, 15, 30, 45, 60, 80, 120])]
/** Moments at which a server that creates and removes sandboxes is killed. */
const killAfterMs = someOf([30, 90, 170, 260, 400, 600, 800, 1000])
const exitWaitMs = 120_000
/** A driver takes its time before it gives up a guest. */
const giveUpWaitMs = 120_000

export function lifeConformance(under: () => DriverUnderTest): void {
  const test = driverTests(under)

  test('create: the sandbox answers, runs commands and leaves nothing after its delete', async () => {
    const { driver, guest, fixture } = under()
    const before = await fixture.trace()
    const id = await create(driver)
    assert.match((await guest(id).hello()).version, /./)
    assert.equal(await succeed(guest(id), 'id -u; hostname; cat /etc/hostname'), `0\n${id}\n${id}`)
    assert.notDeepEqual(await fixture.trace(), before)
    await driver.delete(id)
    assert.deepEqual(await fixture.trace(), before)
    await driver.delete(id)
    await refuses(driver.dial(id), 'unavailable')
  })

  test('hibernate: files survive, and processes where memory is kept', async ({ driver, guest }) => {
    const id = await create(driver)
    await succeed(guest(id), 'echo kept > /workspace/file; (setsid sleep 1000 >/dev/null 2>&1 &)')
    const { sizeBytes } = await driver.hibernate(id)
    assert.ok(sizeBytes > 0)
    await refuses(driver.dial(id), 'unavailable')
    assert.ok((await driver.hibernate(id)).sizeBytes > 0, 'a repeat is harmless')
    await driver.wake(specOf(id))
    await driver.wake(specOf(id))
    const processes = driver.capabilities.fullCheckpoints ? 1 : 0
    assert.equal(await succeed(guest(id), 'cat /workspace/file; pgrep -c sleep || true'), `kept\n${processes}`)
    await driver.delete(id)
  })

  test('hibernate: without saved memory, processes get SIGTERM and those that ignore it are killed', async () => {
    const { driver, guest } = under()
    if (driver.capabilities.fullCheckpoints) return
    const id = await create(driver)
    await startTidy(guest(id))
    await guest(id).spawn({ id: 'deaf', argv: ['/bin/bash', '-c', `trap '' TERM HUP; exec sleep 1000`], envs: {} })
    await driver.hibernate(id)
    await driver.wake(specOf(id))
    assert.equal(await succeed(guest(id), 'cat /root/end; pgrep -c sleep || true'), 'tidy\n0')
    await driver.delete(id)
  })

  test('wake: takes new sizes', async ({ driver, guest }) => {
    const id = await create(driver, { memoryMb: 128 })
    assert.equal(await memoryLimitBytes(guest(id)), 128 * 1024 * 1024)
    await driver.hibernate(id)
    await driver.wake(specOf(id, { memoryMb: 192 }))
    assert.equal(await memoryLimitBytes(guest(id)), 192 * 1024 * 1024)
    await driver.delete(id)
  })

  test('create: an existing id, an unknown image and an unknown checkpoint are refused and leave nothing', async () => {
    const { driver, fixture } = under()
    const id = await create(driver)
    const before = await fixture.trace()
    await refuses(driver.create(specOf(id)), 'conflict')
    const other = freshId('sb')
    for (const image of ['no-such-image', '../base', '']) {
      await refuses(driver.create(specOf(other, { image })), 'not_found')
    }
    const from = { checkpointId: freshId('cp') }
    await refuses(driver.create(specOf(other, { from })), 'not_found')
    await refuses(driver.wake(specOf(other)), 'not_found')
    await refuses(driver.hibernate(other), 'not_found')
    assert.deepEqual(await fixture.trace(), before)
    await driver.delete(id)
  })

  test('create: ids that are no names are refused', async ({ driver }) => {
    for (const id of ['', '..', 'a/b', 'A', 'x'.repeat(64), '-a']) {
      assert.throws(
        () => void driver.create(specOf(id)),
        (error) => isServiceError(error, 'invalid_request'),
      )
    }
  })

  test('create: an abort at any moment leaves nothing', async ({ driver, fixture }) => {
    const before = await fixture.trace()
    let aborted = 0
    for (const delayMs of abortAfterMs) {
      const id = freshId('sb')
      const reason = new Error('no longer wanted')
      const controller = new AbortController()
      const creation = driver.create(specOf(id), controller.signal).catch((error: unknown) => {
        assert.equal(error, reason)
        aborted += 1
      })
      if (delayMs > 0) await sleep(delayMs)
      controller.abort(reason)
      await creation
      await driver.delete(id)
      assert.deepEqual(await fixture.trace(), before, `aborted after ${delayMs} ms`)
    }
    assert.ok(aborted > 0)
  })

  test(`create: ${parallelCreates} at once have each their own address and machine id`, async ({ driver, guest }) => {
    const ids = Array.from({ length: parallelCreates }, () => freshId('sb'))
    await Promise.all(ids.map((id) => driver.create(specOf(id))))
    const told = await Promise.all(ids.map((id) => succeed(guest(id), 'hostname -I; cat /etc/machine-id')))
    assert.equal(new Set(told).size, parallelCreates)
    assert.equal(new Set(told.map((text) => text.split('\n')[0])).size, parallelCreates)
    await Promise.all(ids.map((id) => driver.delete(id)))
  })

  test('exit: an ended sandbox does not count as hibernated before its exit is reported', async () => {
    const { driver, fixture } = under()
    const id = await create(driver)
    const exits: SandboxExit[] = []
    driver.onExit((exit) => exits.push(exit))
    await fixture.crash(id)
    const hibernated = await driver.hibernate(id).catch((error: unknown) => {
      assert.ok(isServiceError(error, 'unavailable'), String(error))
    })
    if (hibernated !== undefined) assert.equal(exits.length, 1, 'it was told before')
    while (exits.length === 0) await sleep(20)
    driver.onExit(() => undefined)
    await driver.delete(id)
  })

  test('exit: a sandbox that ends by itself is reported once, keeps its disk and wakes', async () => {
    const { driver, guest, fixture } = under()
    const id = await create(driver)
    await succeed(guest(id), 'echo kept > /root/file')
    const exits: SandboxExit[] = []
    const exited = new Promise<void>((resolve) => {
      driver.onExit((exit) => {
        exits.push(exit)
        resolve()
      })
    })
    await fixture.crash(id)
    await Promise.race([exited, sleep(exitWaitMs)])
    assert.deepEqual(
      exits.map((exit) => [exit.sandboxId, exit.reason]),
      [[id, 'runtime_failed']],
    )
    await driver.wake(specOf(id))
    assert.equal(await succeed(guest(id), 'cat /root/file'), 'kept')
    await driver.delete(id)
    assert.equal(exits.length, 1, 'a delete is not an exit')
    driver.onExit(() => undefined)
  })

  test('server: a restarted one does not wait for silent guests; it declares them dead, and they wake on their disks', async () => {
    const { driver, guest, fixture, restart } = under()
    const [gone, hung, well] = [freshId('sb'), freshId('sb'), freshId('sb')]
    for (const id of [gone, hung, well]) {
      await driver.create(specOf(id))
      await succeed(guest(id), `echo ${id} > /root/file`)
    }
    const removal = ['/bin/bash', '-c', 'read; rm /.atoll/run/guest.sock']
    await fixture.giveSocketFolder(gone)
    await guest(gone).spawn({ id: 'remove', argv: removal, envs: { PATH: '/usr/bin:/bin' }, stdin: true })
    // The answer to this may be lost with the socket.
    await sendLine(guest(gone), 'remove').catch(() => undefined)
    const isUnavailable = (error: unknown) => isServiceError(error, 'unavailable')
    while (await answers(guest(gone))) await sleep(50)
    await fixture.hang(hung)
    const report = await restart({ sandboxIds: [gone, hung, well] })
    assert.deepEqual(report.running.toSorted(), [gone, hung, well].toSorted())

    const next = under()
    const exits: SandboxExit[] = []
    const bothEnded = new Promise<void>((resolve) => {
      next.driver.onExit((exit) => {
        exits.push(exit)
        if (exits.length === 2) resolve()
      })
    })
    // Until then who asks is told, and nobody waits for ever.
    await Promise.all([gone, hung].map((id) => assert.rejects(next.guest(id).hello(), isUnavailable)))
    await Promise.race([bothEnded, sleep(giveUpWaitMs, undefined, { ref: false })])
    assert.deepEqual(
      exits.map((exit) => `${exit.sandboxId} ${exit.reason}`).toSorted(),
      [gone, hung].map((id) => `${id} runtime_failed`).toSorted(),
    )
    assert.ok(exits.every((exit) => exit.message.includes('answer')))
    next.driver.onExit(() => undefined)
    assert.equal(await succeed(next.guest(well), 'cat /root/file'), well)
    for (const id of [gone, hung]) {
      await assert.rejects(next.driver.dial(id), isUnavailable)
      await next.driver.wake(specOf(id))
      assert.equal(await succeed(next.guest(id), 'cat /root/file'), id)
    }
    await remove(next.driver, gone, hung, well)
  })

  test('server: a second one on the same data is refused', async ({ fixture }) => {
    const second = fixture.makeDriver()
    await refuses(second.open(await knowing(fixture)), 'unavailable')
  })

  test('server: a restarted one adopts running sandboxes, keeps hibernated ones and removes abandoned ones', async () => {
    const { driver, guest, restart } = under()
    const [running, sleeping, orphan, gone] = [freshId('sb'), freshId('sb'), freshId('sb'), freshId('sb')]
    for (const id of [running, sleeping, orphan]) await driver.create(specOf(id))
    await guest(running).spawn({ id: 'counter', argv: ['/bin/sleep', '1000'], envs: {} })
    await succeed(guest(sleeping), 'echo kept > /root/file')
    await driver.hibernate(sleeping)
    await driver.checkpoint(running, 'cp-orphan', 'disk_only')

    const report = await restart({ sandboxIds: [running, sleeping, gone], checkpointIds: ['cp-gone'] })
    assert.deepEqual(report.running, [running])
    assert.deepEqual(report.dormant, [sleeping])
    assert.deepEqual(report.lost, [gone])
    assert.deepEqual(report.lostCheckpoints, ['cp-gone'])
    assert.deepEqual(report.removed.toSorted(), ['cp-orphan', orphan].toSorted())

    const next = under()
    assert.equal((await next.guest(running).process('counter')).running, true)
    await next.driver.wake(specOf(sleeping))
    assert.equal(await succeed(next.guest(sleeping), 'cat /root/file'), 'kept')
    await next.driver.create(specOf(orphan))
    await remove(next.driver, running, sleeping, orphan)
  })

  test('server: killed while it creates and removes sandboxes, it leaves nothing after the next start', async () => {
    const { driver, fixture, guest, restart } = under()
    const before = await fixture.trace()
    const kept = await create(driver)
    await succeed(guest(kept), 'echo kept > /root/file')
    await driver.close()
    for (const delayMs of killAfterMs) {
      const victim = await fixture.startVictim({ sandboxIds: [kept] })
      await sleep(delayMs)
      await victim.kill()
    }
    const report = await restart({ sandboxIds: [kept] })
    assert.deepEqual(report.running, [kept])
    const next = under()
    assert.equal(await succeed(next.guest(kept), 'cat /root/file'), 'kept')
    const stranger = await create(next.driver)
    assert.equal((await shell(next.guest(stranger), 'true')).exitCode, 0)
    await remove(next.driver, stranger, kept)
    assert.deepEqual(await fixture.trace(), before)
  })
}

async function answers(guest: Guest): Promise<boolean> {
  return guest.hello().then(
    () => true,
    () => false,
  )
}
