/** Ends of the server at each call that fills the warm pool, claims from it and refills it. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { everyCall } from '../../src/lib/testing/thorough.ts'
import { Crash } from '../../src/session/testing/crash.ts'
import type { Store } from '../../src/store/index.ts'
import { FakeMachines } from '../support/fake-machines.ts'
import { Calls, type Mode } from '../support/faults.ts'
import { makeOrganisation, makeSandboxService } from '../support/sandbox-service.ts'
import { makeWorld, until, worlds } from './world.ts'

const size = 2

const { sharedStore } = worlds()

/** Returns false when the server has filled, given away and refilled its pool without that many calls. */
async function surviveEnd(store: Store, at: number, mode: Mode): Promise<boolean> {
  const machines = new FakeMachines()
  const { id: orgId } = await makeOrganisation(store)
  const [crash, calls] = [new Crash(at, mode), new Calls()]
  const { service } = makeSandboxService({
    store: crash.wrap(calls.wrap(store.sandboxes)),
    driver: crash.wrap<FakeMachines>(machines),
    guest: (id) => machines.guest(id),
    warmSandboxesMax: size,
  })
  const filled = () => until(() => (service.warmCounts()['base'] ?? 0) === size)
  const acknowledged: string[] = []
  const story = (async () => {
    await service.start()
    await filled()
    acknowledged.push((await service.create(orgId, {})).sandbox.id)
    // As a session does.
    const announced = await service.newId()
    acknowledged.push((await service.create(orgId, { id: announced })).sandbox.id)
    await filled()
  })()
  story.catch(() => undefined)
  await Promise.race([story, crash.died])
  const { happened } = crash
  if (!happened) crash.die()
  await calls.ended()
  await surviveStart(store, orgId, machines, acknowledged)
  return happened
}

/** The next start of a server. What a driver does in its `open` is done here. */
async function surviveStart(store: Store, orgId: string, machines: FakeMachines, acknowledged: readonly string[]) {
  const { service } = await makeWorld(store, {}, { machines, orgId })
  const running = (await store.sandboxes.sandboxesIn(['running'])).map(({ id }) => id)
  machines.report = { running }
  await service.start()
  const { sandboxIds: abandoned = [] } = machines.opened?.abandoned ?? {}
  for (const id of [...abandoned, ...machines.warm]) {
    assert.ok(!acknowledged.includes(id), 'what was acknowledged has an owner')
    await machines.delete(id)
  }
  const { items } = await service.list(orgId, {})
  const of = (wanted: string) => items.filter(({ status }) => status === wanted).map(({ id }) => id)
  assert.deepEqual(of('creating'), [])
  assert.deepEqual([...machines.machines.keys()].toSorted(), of('running').toSorted(), 'what runs has a row')
  for (const id of acknowledged) assert.ok(of('running').includes(id))
  for (const { id, status, reason } of items) if (status === 'error') assert.equal(reason, 'runtime_failed', id)
  // A session begins again with the id that it has announced.
  for (const id of of('error')) assert.equal((await service.create(orgId, { id })).sandbox.status, 'running')
  const { sandbox } = await service.create(orgId, {})
  assert.equal(sandbox.status, 'running')
  for (const { id } of (await service.list(orgId, {})).items) await service.delete(orgId, id)
  assert.equal(machines.machines.size, 0)
  await service.close()
}

for (const mode of ['before', 'after'] as const) {
  test(`warm pool: an end of the server ${mode} any call leaves none without an owner`, async () => {
    await everyCall(10, (at) => surviveEnd(sharedStore(), at, mode))
  })
}
