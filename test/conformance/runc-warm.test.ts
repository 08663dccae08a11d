/** The driver's promises for sandboxes that wait for their owner with other sizes: nobody can tell them from those of a cold start. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import type { RuntimeDriver, SandboxSpec } from '../../src/sandbox/ports/runtime-driver.ts'
import { changeConformance } from './driver-changes.ts'
import { isolationConformance } from './driver-isolation.ts'
import { lifeConformance } from './driver-life.ts'
import { limitConformance } from './driver-limits.ts'
import { makeRuncFixture, useRunc } from './driver-runc-host.ts'
import { create, freshId, remove, specOf, succeed } from './driver-shell.ts'
import { driverConformance, type DriverFixture } from './driver.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

const prepared = { cpuCount: 2, memoryMb: 512, diskMb: 512 }

/** A driver each of whose creates takes over a sandbox that was prepared before. */
function takingOver(driver: RuntimeDriver): RuntimeDriver {
  const takeOver = (spec: SandboxSpec, signal?: AbortSignal) => {
    if (spec.from !== undefined) return driver.create(spec, signal)
    // What cannot be prepared cannot be created either, and that is what the caller tests.
    const ready = driver.prepare({ ...spec, ...prepared }, signal).catch(() => undefined)
    return ready.then(() => driver.create(spec, signal))
  }
  return new Proxy(driver, {
    get(target, key) {
      if (key === 'create') return takeOver
      const value: unknown = Reflect.get(target, key, target)
      return typeof value === 'function' ? (value.bind(target) as unknown) : value
    },
  })
}

const makeFixture = async (): Promise<DriverFixture> => {
  const fixture = await makeRuncFixture()
  return { ...fixture, makeDriver: (options) => takingOver(fixture.makeDriver(options)) }
}

driverConformance('runc, warm', makeFixture, [
  lifeConformance,
  changeConformance,
  limitConformance,
  isolationConformance,
])

describe('the runc driver with prepared sandboxes', () => {
  const runc = useRunc()

  /** The id of a prepared sandbox. */
  async function prepare(): Promise<string> {
    const id = freshId('sb')
    await runc.driver.prepare(specOf(id))
    return id
  }

  test('prepare: what waits is what a create would start, until it has an owner, ends or is removed', async () => {
    const { driver, fixture } = runc
    const [owned, ended, removed] = [await prepare(), await prepare(), await prepare()]
    for (const id of [owned, ended, removed]) assert.equal(await driver.isPrepared(specOf(id)), true)
    assert.equal(await driver.isPrepared(specOf(owned, { from: { checkpointId: 'cp-unknown' } })), false)
    assert.equal(await driver.isPrepared(specOf(owned, { image: 'unknown' })), false)
    await driver.create(specOf(owned))
    await fixture.crash(ended)
    await driver.delete(removed)
    for (const id of [owned, removed, 'sb-unknown']) assert.equal(await driver.isPrepared(specOf(id)), false)
    await eventually(async () => !(await driver.isPrepared(specOf(ended))))
    await remove(driver, owned, ended)
  })

  test('prepare: a create of a prepared sandbox that has ended starts another of that id', async () => {
    const { driver, fixture, guest } = runc
    const id = await prepare()
    await succeed(guest(id), 'touch /root/earlier')
    await fixture.crash(id)
    await driver.create(specOf(id))
    assert.equal(await succeed(guest(id), 'ls /root; hostname'), id)
    await remove(driver, id)
  })

  test('prepare: a sandbox that waits with the disk of a checkpoint is no fit for another one', async () => {
    const { driver, guest } = runc
    const source = await create(driver)
    await succeed(guest(source), 'echo kept > /root/file')
    const checkpointId = freshId('cp')
    await driver.checkpoint(source, checkpointId, 'disk_only')
    const from = { checkpointId }
    const [fork, plain] = [freshId('sb'), freshId('sb')]
    for (const id of [fork, plain]) await driver.prepare(specOf(id, { from }))
    assert.equal(await driver.isPrepared(specOf(plain)), false)
    await driver.create(specOf(fork, { from }))
    await driver.create(specOf(plain))
    assert.equal(await succeed(guest(fork), 'cat /root/file'), 'kept')
    assert.equal(await succeed(guest(plain), 'ls /root'), '')
    await remove(driver, source, fork, plain, checkpointId)
  })
})
