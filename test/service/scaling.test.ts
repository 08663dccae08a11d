import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ServiceError } from '../../src/errors.ts'
import type { Sandbox } from '../../src/sandbox/index.ts'
import { isServiceError } from '../../src/errors.ts'
import { throwsCode, worlds } from './world.ts'

const { makeSandbox } = worlds()

const mebibyte = 1024 * 1024

function using(memoryMb: number) {
  const none = { cpuUs: 0, diskBytes: 0, networkReceivedBytes: 0, networkSentBytes: 0, processCount: 1 }
  return { ...none, memoryBytes: memoryMb * mebibyte }
}

const sizesOf = ({ memoryMb, cpuCount }: Sandbox) => [memoryMb, cpuCount]

test('scale: it changes memory, with CPU in step, which never shrinks by itself', async () => {
  const { service, machines, orgId, sandbox } = await makeSandbox({ cpuCountMax: 4 })
  const scale = async (memoryMb: number) => sizesOf((await service.scaling.scale(orgId, sandbox.id, memoryMb)).sandbox)
  assert.deepEqual(await scale(16_384), [16_384, 4])
  assert.equal(machines.machines.get(sandbox.id)?.spec.memoryMb, 16_384)
  assert.deepEqual(await scale(2048), [2048, 4])
  assert.deepEqual(await scale(65_536), [65_536, 4], 'no more CPU than the operator allows')
  for (const memoryMb of [0, 1.5, 1e9]) {
    await assert.rejects(scale(memoryMb), throwsCode('invalid_request', /memoryMB/))
  }
})

test('limits: what is absent or 0 stays, and CPU may be a part of one', async () => {
  const { service, machines, orgId, sandbox } = await makeSandbox()
  const limit = async (memoryMb?: number, cpuPercent?: number) =>
    sizesOf(await service.scaling.limit(orgId, sandbox.id, { memoryMb, cpuPercent }))
  assert.deepEqual(await limit(), [1024, 1])
  assert.deepEqual(await limit(0, 50), [1024, 0.5])
  assert.deepEqual(await limit(512), [512, 1])
  assert.deepEqual(await limit(8192), [8192, 2])
  assert.deepEqual(await limit(512, 800), [512, 8])
  assert.equal(machines.machines.get(sandbox.id)?.spec.cpuCount, 8)
  for (const cpuPercent of [1, 9, 12.5, 1e6, -1]) {
    await assert.rejects(limit(0, cpuPercent), throwsCode('invalid_request', /cpuPercent/))
  }
})

test('scale: a sandbox keeps a twentieth more than its processes need', async () => {
  const { service, machines, orgId, sandbox } = await makeSandbox()
  machines.usages.set(sandbox.id, using(400))
  const scale = (memoryMb: number) => service.scaling.scale(orgId, sandbox.id, memoryMb)
  await assert.rejects(scale(419), (error) => {
    assert.ok(isServiceError(error, 'oom_floor'))
    const details = { requestedMB: 419, floorMB: 420, workingSetBytes: 400 * mebibyte }
    assert.deepEqual(error.details, { details })
    return true
  })
  assert.equal((await service.get(orgId, sandbox.id)).memoryMb, 1024)
  await scale(420)
  machines.usages.set(sandbox.id, using(500))
  await scale(430)
  machines.resize = async () => {
    throw new ServiceError('conflict', 'it has just taken more')
  }
  machines.usages.set(sandbox.id, using(100))
  await assert.rejects(scale(420), throwsCode('oom_floor', /just taken/))
})

test('scale: a hibernated sandbox wakes, with its old memory where it is to shrink', async () => {
  const { service, machines, orgId, sandbox } = await makeSandbox()
  const woken: number[] = []
  const { wake } = machines
  machines.wake = async (spec, signal) => {
    woken.push(spec.memoryMb)
    await wake.call(machines, spec, signal)
  }
  for (const memoryMb of [2048, 512]) {
    await service.hibernate(orgId, sandbox.id)
    const { sandbox: scaled } = await service.scaling.scale(orgId, sandbox.id, memoryMb)
    assert.deepEqual([scaled.status, scaled.memoryMb], ['running', memoryMb])
  }
  assert.deepEqual(woken, [2048, 2048])
})

test('scaling lock: no size changes, from outside or inside, and autoscale is off for good', async () => {
  const { service, orgId, sandbox } = await makeSandbox()
  const { scaling } = service
  const bounds = { enabled: true, minMemoryMb: 1024, maxMemoryMb: 4096 }
  await scaling.setAutoscale(orgId, sandbox.id, bounds)
  const locked = await scaling.setLock(orgId, sandbox.id, true)
  assert.deepEqual([locked.isScalingLocked, locked.isAutoscaled], [true, false])
  for (const call of [
    () => scaling.scale(orgId, sandbox.id, 2048),
    () => scaling.limit(orgId, sandbox.id, { memoryMb: 2048 }),
    () => scaling.limitFromInside(sandbox.id, { memoryMb: 2048 }),
    () => scaling.setAutoscale(orgId, sandbox.id, bounds),
  ]) {
    await assert.rejects(call(), throwsCode('scaling_locked'))
  }
  await service.hibernate(orgId, sandbox.id)
  await assert.rejects(scaling.scale(orgId, sandbox.id, 2048), throwsCode('scaling_locked'))
  assert.equal((await service.get(orgId, sandbox.id)).status, 'hibernated', 'nothing wakes for a refusal')
  const unlocked = await scaling.setLock(orgId, sandbox.id, false)
  assert.deepEqual([unlocked.isScalingLocked, unlocked.isAutoscaled], [false, false])
})

test('scaling lock: it waits for a change of size under way, and autoscale comes before or after it', async () => {
  const { service, machines, orgId, sandbox } = await makeSandbox()
  const { scaling } = service
  const [begun, held] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const { resize } = machines
  machines.resize = async (spec) => {
    begun.resolve()
    await held.promise
    await resize.call(machines, spec)
  }
  const order: string[] = []
  const note = (what: string) => () => void order.push(what)
  const scaled = scaling.scale(orgId, sandbox.id, 2048).then(note('scaled'))
  await begun.promise
  const locked = scaling.setLock(orgId, sandbox.id, true).then(note('locked'))
  const autoscaled = assert.rejects(
    scaling.setAutoscale(orgId, sandbox.id, { enabled: true, minMemoryMb: 1024, maxMemoryMb: 4096 }),
    throwsCode('scaling_locked'),
  )
  held.resolve()
  await Promise.all([scaled, locked, autoscaled])
  assert.deepEqual(order, ['scaled', 'locked'])
  const { isScalingLocked, isAutoscaled, memoryMb } = await service.get(orgId, sandbox.id)
  assert.deepEqual([isScalingLocked, isAutoscaled, memoryMb], [true, false, 2048])
})

test('autoscale: the bounds are checked, a scale turns it off and says so, limits do not', async () => {
  const { service, orgId, sandbox } = await makeSandbox()
  const { scaling } = service
  const set = (minMemoryMb?: number, maxMemoryMb?: number, enabled = true) =>
    scaling.setAutoscale(orgId, sandbox.id, { enabled, minMemoryMb, maxMemoryMb })
  await assert.rejects(set(), throwsCode('invalid_request', /^minMemoryMB/))
  await assert.rejects(set(1024), throwsCode('invalid_request', /^maxMemoryMB/))
  await assert.rejects(set(1, 1024), throwsCode('invalid_request', /^minMemoryMB/))
  await assert.rejects(set(4096, 1024), throwsCode('invalid_request', /^minMemoryMB .*maxMemoryMB/))
  const { isAutoscaled, autoscaleMinMb, autoscaleMaxMb } = await set(512, 3000)
  assert.deepEqual([isAutoscaled, autoscaleMinMb, autoscaleMaxMb], [true, 512, 3000])
  assert.equal((await scaling.limit(orgId, sandbox.id, { memoryMb: 2048 })).isAutoscaled, true)
  assert.equal((await scaling.scale(orgId, sandbox.id, 1024)).wasAutoscaled, true)
  assert.equal((await scaling.scale(orgId, sandbox.id, 1024)).wasAutoscaled, false)
  assert.equal((await service.get(orgId, sandbox.id)).autoscaleMaxMb, 3000)
  await set(1024, 4096)
  const off = await set(undefined, undefined, false)
  assert.deepEqual([off.isAutoscaled, off.autoscaleMinMb], [false, 1024])
})

test('limits from inside: they neither wake the sandbox nor keep it awake', async () => {
  const { service, orgId, sandbox } = await makeSandbox()
  const before = service.endAt(sandbox)
  const { memoryMb } = await service.scaling.limitFromInside(sandbox.id, { memoryMb: 2048 })
  assert.equal(memoryMb, 2048)
  assert.deepEqual(service.endAt(await service.get(orgId, sandbox.id)), before)
  await service.hibernate(orgId, sandbox.id)
  await assert.rejects(service.scaling.limitFromInside(sandbox.id, { memoryMb: 1024 }), throwsCode('conflict'))
})

test('sizes: a change that fails halfway is taken back from the machine, unless its memory is in use', async () => {
  const { service, machines, orgId, sandbox, store } = await makeSandbox()
  const { resize } = machines
  let meanwhile = async () => {}
  machines.resize = async (spec) => {
    await resize.call(machines, spec)
    await meanwhile()
  }
  const lost = () => Promise.reject(new ServiceError('unavailable', 'the machine does not answer any more'))
  const inForce = () => machines.machines.get(sandbox.id)?.spec.memoryMb
  meanwhile = lost
  await assert.rejects(service.scaling.scale(orgId, sandbox.id, 4096), throwsCode('unavailable'))
  assert.deepEqual([inForce(), (await service.get(orgId, sandbox.id)).memoryMb], [1024, 1024])
  machines.usages.set(sandbox.id, using(2000))
  await assert.rejects(service.scaling.scale(orgId, sandbox.id, 4096), throwsCode('unavailable'))
  assert.deepEqual([inForce(), (await service.get(orgId, sandbox.id)).memoryMb], [4096, 4096], 'it is in use')
  assert.equal((await store.sandboxes.sandbox(sandbox.id))?.memoryMb, 4096)
})
