/** Ends of the server at each call that fills the warm pool, claims from it and refills it. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ServiceError } from '../../src/errors.ts'
import { newId } from '../../src/lib/id.ts'
import { everyCall } from '../../src/lib/testing/thorough.ts'
import type { RunningSandboxService } from '../../src/sandbox/index.ts'
import type { SandboxSpec } from '../../src/sandbox/ports/runtime-driver.ts'
import { Crash } from '../../src/session/testing/crash.ts'
import type { Store } from '../../src/store/index.ts'
import { FakeMachines } from '../support/fake-machines.ts'
import { Calls, Fault, type Mode, Request } from '../support/faults.ts'
import { makeOrganisation, makeSandboxService } from '../support/sandbox-service.ts'
import { makeWorld, throwsCode, worlds } from './world.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

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
  // It never is after the crash.
  const filled = () => eventually(() => crash.happened || (service.warmCounts()['base'] ?? 0) === size)
  const acknowledged: string[] = []
  const happened = await crash.within(async () => {
    await service.start()
    await filled()
    acknowledged.push((await service.create(orgId, {})).sandbox.id)
    // As a session does.
    const announced = await service.newId(orgId)
    acknowledged.push((await service.create(orgId, { id: announced })).sandbox.id)
    await filled()
  })
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

/**
 * A create under a key takes the warm sandbox whose id is in the seed of the key. Whatever call of the database fails, or is the last of the
 * server, a repeat finds that id again. Returns false when the request is done without that many calls.
 */
async function surviveKeyed(store: Store, at: number, mode: Mode, event: 'fault' | 'end'): Promise<boolean> {
  const machines = new FakeMachines()
  const { id: orgId } = await makeOrganisation(store)
  const [trouble, calls] = [event === 'fault' ? new Fault(at, mode) : new Crash(at, mode), new Calls()]
  let isArmed = false
  const armed = trouble.wrap(calls.wrap(store.sandboxes))
  const switched = new Proxy(store.sandboxes, {
    get: (calm, name) => Reflect.get(isArmed ? armed : calm, name) as unknown,
  })
  const hasEnded = () => trouble instanceof Crash && trouble.happened
  const noted = calls.wrap({ prepare: (spec: SandboxSpec) => machines.prepare(spec) })
  // A server that has ended makes no machine, and what it had begun to make is there before the next one looks.
  const driver = new Proxy(machines, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name)
      if (typeof value !== 'function') return value
      if (name !== 'prepare') return value.bind(target) as unknown
      return (spec: SandboxSpec) => (hasEnded() ? new Promise<never>(() => {}) : noted.prepare(spec))
    },
  })
  const options = { driver, guest: (id: string) => machines.guest(id) }
  const { service } = makeSandboxService({ ...options, store: switched, warmSandboxesMax: size })
  await service.start()
  await eventually(() => service.warmCounts()['base'] === size)
  const [warm = ''] = machines.warm
  isArmed = true
  const request = new Request(
    orgId,
    (creation) => service.create(orgId, {}, { creation }),
    undefined,
    ids(service, orgId),
  )
  const sent = request.insist(trouble.wrap(calls.wrap(store.idempotency)))
  sent.catch(() => undefined)
  const died = trouble instanceof Crash ? trouble.died : new Promise<never>(() => {})
  const isEnded = (await Promise.race([sent, died])) === 'died'
  isArmed = false
  if (isEnded) await calls.ended()
  else if ((await sent).body.sandbox.id !== warm) assert.ok(trouble.happened, 'only a later run starts cold')
  const { happened } = trouble
  if (!isEnded) await service.close()

  const next = await makeWorld(store, {}, { machines, orgId })
  machines.report = { running: [...machines.machines.keys()].filter((id) => !machines.warm.has(id)) }
  await next.service.start()
  for (const id of [...machines.warm, ...(machines.opened?.abandoned.sandboxIds ?? [])]) await machines.delete(id)
  const again = new Request(orgId, (creation) => next.service.create(orgId, {}, { creation }), request)
  const { id } = (await again.insist(store.idempotency)).body.sandbox
  const { items } = await next.service.list(orgId, {})
  assert.deepEqual(
    items.map((sandbox) => [sandbox.id, sandbox.status]),
    [[id, 'running']],
  )
  assert.deepEqual([...machines.machines.keys()], [id])
  await next.service.delete(orgId, id)
  await next.service.close()
  return happened
}

for (const mode of ['before', 'after'] as const) {
  for (const event of ['fault', 'end'] as const) {
    test(`warm pool: a create under a key makes one sandbox, with ${event === 'fault' ? 'a fault' : 'an end'} ${mode} any call of the database`, async () => {
      await everyCall(4, (at) => surviveKeyed(sharedStore(), at, mode, event))
    })
  }
}

/** As the API reserves them. */
const ids = ({ reserve, release }: Pick<RunningSandboxService, 'reserve' | 'release'>, orgId: string) => ({
  reserve: () => reserve(orgId),
  release,
})

test('warm pool: a create under a key takes a warm sandbox, and one that does not need it gives it back', async () => {
  const store = sharedStore()
  const machines = new FakeMachines()
  const { id: orgId } = await makeOrganisation(store)
  const options = { driver: machines, guest: (id: string) => machines.guest(id) }
  const { service } = makeSandboxService({ ...options, store: store.sandboxes, warmSandboxesMax: 1 })
  await service.start()
  const filled = () => eventually(() => service.warmCounts()['base'] === 1)
  await filled()
  const [warm] = machines.warm
  const request = new Request(
    orgId,
    (creation) => service.create(orgId, {}, { creation }),
    undefined,
    ids(service, orgId),
  )
  assert.equal((await request.insist(store.idempotency)).body.sandbox.id, warm)
  await filled()
  assert.equal((await request.insist(store.idempotency)).body.sandbox.id, warm)
  assert.deepEqual([service.warmCounts(), machines.machines.size], [{ base: 1 }, 2])
  // Refused, with and without an answer that is kept.
  for (const refusal of [new ServiceError('rate_limited', 'too many'), new ServiceError('invalid_request', 'no')]) {
    const refused = new Request(orgId, () => Promise.reject(refusal), undefined, ids(service, orgId))
    await refused.insist(store.idempotency).catch(() => undefined)
    assert.deepEqual(service.warmCounts(), { base: 1 }, refusal.code)
  }
  await service.delete(orgId, warm ?? '')
  await service.close()
})

test('warm pool: a create, a wake and a restart without room run again without warm sandboxes', async () => {
  const store = sharedStore()
  const machines = new FakeMachines()
  const { id: orgId } = await makeOrganisation(store)
  const withoutRoom = async () => {
    if (machines.warm.size > 0) throw new ServiceError('no_capacity', 'no room')
  }
  const options = { driver: machines, guest: (id: string) => machines.guest(id), warmSandboxesMax: 1 }
  const make = async () => {
    const { service } = makeSandboxService({ ...options, store: store.sandboxes })
    machines.report = { running: [...machines.machines.keys()] }
    await service.start()
    await eventually(() => service.warmCounts()['base'] === 1)
    return service
  }
  let id = ''
  for (const work of ['create', 'wake', 'restart'] as const) {
    const service = await make()
    if (work === 'wake') await service.hibernate(orgId, id)
    machines.before[work] = withoutRoom
    if (work === 'create') id = (await service.create(orgId, { id: newId('sb-') })).sandbox.id
    if (work === 'wake') assert.equal((await service.wake(orgId, id)).status, 'running')
    if (work === 'restart') assert.equal((await service.powerCycle(orgId, id)).status, 'running')
    assert.equal(machines.warm.size, 0, work)
    machines.before = {}
    await service.close()
  }
  machines.before.create = () => Promise.reject(new ServiceError('no_capacity', 'no room'))
  const { service } = makeSandboxService({ ...options, store: store.sandboxes })
  await service.start()
  await assert.rejects(service.create(orgId, {}), throwsCode('no_capacity'))
  assert.deepEqual([...machines.machines.keys()], [id])
  await service.delete(orgId, id)
  await service.close()
})

test('warm pool: a create whose name is taken gives its warm sandbox back', async () => {
  const machines = new FakeMachines()
  const store = sharedStore()
  const { id: orgId } = await makeOrganisation(store)
  const guest = (id: string) => machines.guest(id)
  const { service } = makeSandboxService({ store: store.sandboxes, driver: machines, guest, warmSandboxesMax: size })
  await service.start()
  const { sandbox } = await service.create(orgId, { name: 'web' })
  await eventually(() => service.warmCounts()['base'] === size)
  for (let count = 0; count < size; count += 1) {
    await assert.rejects(service.create(orgId, { name: 'web' }), throwsCode('conflict'))
  }
  assert.equal(service.warmCounts()['base'], size)
  await service.delete(orgId, sandbox.id)
  assert.equal((await service.create(orgId, { name: 'web' })).sandbox.name, 'web')
  await service.close()
})
