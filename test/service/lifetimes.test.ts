import assert from 'node:assert/strict'
import { afterEach, test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { isServiceError } from '../../src/errors.ts'
import { newId } from '../../src/lib/id.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { maxAgeSecondsOf, type Sandbox, type SandboxDefaults, type SandboxStore } from '../../src/sandbox/index.ts'
import { forgetSandboxes, guestProcess, hold, makeWorld as makeWorldOn, throwsCode, worlds } from './world.ts'

const { makeWorld, sharedStore } = worlds()

afterEach(() => forgetSandboxes(sharedStore()))

/** A world whose server has started. */
async function startedWorld(context: TestContext, defaults: SandboxDefaults = {}) {
  const world = await makeWorld({ startsAtOnce: 20 }, { defaults })
  const { service, orgId, store, machines } = world
  await service.start()
  let isClosed = false
  const close = async () => {
    if (!isClosed) await service.close()
    isClosed = true
  }
  context.after(close)
  return {
    ...world,
    close,
    create: async (input: object = {}) => (await service.create(orgId, input)).sandbox,
    /** Waits until it is stopped, and its machine gone. */
    async ended({ id }: Pick<Sandbox, 'id'>) {
      await eventually(async () => (await service.get(orgId, id)).status === 'stopped')
      await eventually(() => machines.state(id) === undefined)
      return await service.get(orgId, id)
    },
    /** Lets it reach its maximum age within a second; returns that age, the youngest that the service takes. */
    async endSoon({ id, createdAt }: Pick<Sandbox, 'id' | 'createdAt'>) {
      for (let seconds = Math.floor((Date.now() - createdAt.getTime()) / 1000) + 1; ; seconds += 1) {
        try {
          await service.update(orgId, id, { maxAgeSeconds: seconds })
          return seconds
        } catch (error) {
          // A second has passed in between.
          assert.ok(throwsCode('invalid_request', /age of the sandbox/)(error))
        }
      }
    },
    async lastEvent({ id }: Pick<Sandbox, 'id'>) {
      const page = await store.events.page(orgId, { after: 0, limit: 1000, filter: { sandboxId: id } })
      const { type, actor, cause, data } = page.events.at(-1)!
      return [type, actor.type, cause, data]
    },
  }
}

const stoppedBy = (reason: string, cause: string) => ['sandbox.stopped', 'server', cause, { reason }]
const restOf = ({ status: _status, stoppedAt: _stoppedAt, ...rest }: Sandbox) => rest
/** On a busy machine a start takes seconds, and one that reaches its age meanwhile fails. */
const age = { maxAgeSeconds: 5 }

test('maximum age: it ends sandboxes that run, are used, hibernate or are in error, and says why', async (context) => {
  const { service, machines, orgId, create, endSoon, ended, lastEvent } = await startedWorld(context)
  const [running, used, asleep, failed] = [await create(age), await create(), await create(), await create()]
  const [other, old] = [await create(), await create({ maxAgeSeconds: 3600 })]
  service.previews.keepAlive(used.id)
  await service.hibernate(orgId, asleep.id)
  const usedSeconds = await endSoon(used)
  const asleepSeconds = await endSoon(asleep)
  const failedSeconds = await endSoon(failed)
  machines.exit({ sandboxId: failed.id, reason: 'oom', message: 'out of memory' })
  for (const [sandbox, seconds] of [
    [running, age.maxAgeSeconds],
    [used, usedSeconds],
    [asleep, asleepSeconds],
    [failed, failedSeconds],
  ] as const) {
    const { reason, reasonMessage, stoppedAt, createdAt, expiresAt } = await ended(sandbox)
    assert.equal(reason, 'expired')
    assert.match(reasonMessage ?? '', new RegExp(`maximum age of ${seconds} seconds`))
    assert.ok(stoppedAt && expiresAt && stoppedAt >= expiresAt)
    assert.equal(expiresAt.getTime(), createdAt.getTime() + seconds * 1000)
    assert.deepEqual(await lastEvent(sandbox), stoppedBy('expired', 'max_age'))
    await assert.rejects(service.exec.list(orgId, sandbox.id), throwsCode('sandbox_stopped', /maximum age/))
  }
  for (const { id } of [other, old]) assert.equal((await service.get(orgId, id)).status, 'running')
})

test('maximum age: one that is reached in the middle of a transition ends the sandbox, and nothing is left', async (context) => {
  const world = await startedWorld(context)
  const { service, machines, orgId, store, create, endSoon, ended } = world
  machines.capabilities = { fullCheckpoints: true }
  const [waking, sleeping, dumped, restored] = [await create(), await create(), await create(), await create()]
  const checkpoint = await service.checkpoints.create(orgId, restored.id, { name: 'one' })
  await service.checkpoints.settled(orgId, checkpoint.id)
  await service.hibernate(orgId, waking.id)
  const holds = (['create', 'wake', 'hibernate', 'checkpoint', 'restore'] as const).map((step) => hold(machines, step))
  const creatingId = newId('sb-')
  const forkedId = newId('sb-')
  const outcomes = Promise.allSettled([
    service.create(orgId, { id: creatingId, ...age }),
    service.checkpoints.start(orgId, checkpoint.id, { id: forkedId, ...age }),
    service.wake(orgId, waking.id),
    service.hibernate(orgId, sleeping.id),
    service.checkpoints.create(orgId, dumped.id, { name: 'two' }),
    service.checkpoints.restore(orgId, restored.id, checkpoint.id),
  ])
  for (const { begun } of holds) await begun
  const changed = [waking, sleeping, dumped, restored]
  for (const sandbox of changed) await endSoon(sandbox)
  const all = [...changed, { id: creatingId }, { id: forkedId }]
  for (const { id } of all) await eventually(async () => (await service.get(orgId, id)).status === 'stopped')
  for (const { release } of holds) release()
  for (const one of all) assert.equal((await ended(one)).reason, 'expired')
  const codes = (await outcomes).map(
    (one) => one.status === 'rejected' && isServiceError(one.reason, 'sandbox_stopped'),
  )
  assert.deepEqual([codes[0], codes[1], codes[2], codes[5]], [true, true, true, true])
  assert.equal(machines.machines.size, 0)
  const kept = await store.sandboxes.listCheckpoints(dumped.id, orgId)
  for (const { id } of kept) await service.checkpoints.settled(orgId, id)
  assert.deepEqual(world.errors, [])
})

test('maximum age: the next start ends what reached it while no server ran', async (context) => {
  const first = await startedWorld(context)
  const { orgId, store, machines } = first
  const [past, future] = [await first.create({ maxAgeSeconds: 3600 }), await first.create({ maxAgeSeconds: 3600 })]
  await first.close()
  await store.sandboxes.updateSandbox(past.id, { expiresAt: new Date(Date.now() - 1) })
  machines.report = { running: [past.id, future.id] }
  const { service } = await makeWorld({}, { machines, orgId })
  context.after(() => service.close())
  await service.start()
  await eventually(async () => (await service.get(orgId, past.id)).reason === 'expired')
  await eventually(() => machines.state(past.id) === undefined)
  assert.equal((await service.get(orgId, future.id)).status, 'running')
})

test('maximum age: a later age that is set while the end is recorded keeps the sandbox', async (context) => {
  const store = sharedStore()
  let expiring = async (_id: string) => {}
  const updateSandbox: SandboxStore['updateSandbox'] = async (id, change, ...more) => {
    if (change.status === 'stopped') await expiring(id)
    return await store.sandboxes.updateSandbox(id, change, ...more)
  }
  const { service, orgId } = await makeWorldOn({ ...store, sandboxes: { ...store.sandboxes, updateSandbox } })
  context.after(() => service.close())
  await service.start()
  const renewed = Promise.withResolvers<void>()
  expiring = async (id) => {
    expiring = async () => {}
    await service.update(orgId, id, { maxAgeSeconds: 3600 })
    renewed.resolve()
  }
  const { sandbox } = await service.create(orgId, { maxAgeSeconds: 5 })
  await renewed.promise
  // The next end is looked for after this one.
  await service.create(orgId, { maxAgeSeconds: 1 }).catch(() => undefined)
  await eventually(async () => (await store.sandboxes.sandboxesIn(['stopped'])).length === 1)
  assert.equal((await service.get(orgId, sandbox.id)).status, 'running')
})

test('change: one whose sandbox ends meanwhile says that it is stopped, and leaves its record as it was', async () => {
  const store = sharedStore()
  let changing = async (_id: string) => {}
  const updateSandbox: SandboxStore['updateSandbox'] = async (id, change, ...more) => {
    if (change.status === undefined) await changing(id)
    return await store.sandboxes.updateSandbox(id, change, ...more)
  }
  const { service, orgId } = await makeWorldOn({ ...store, sandboxes: { ...store.sandboxes, updateSandbox } })
  changing = (id) => service.delete(orgId, id)
  for (const change of [
    (id: string) => service.update(orgId, id, { name: 'reef' }),
    (id: string) => service.update(orgId, id, { maxAgeSeconds: 3600 }),
    (id: string) => service.setTimeout(orgId, id, 7),
    (id: string) => service.setTags(orgId, id, { team: 'reef' }),
    (id: string) => service.previews.rotate(orgId, id),
  ]) {
    const { sandbox } = await service.create(orgId, {})
    await assert.rejects(change(sandbox.id), throwsCode('sandbox_stopped'))
    const { status, stoppedAt, ...rest } = await service.get(orgId, sandbox.id)
    assert.deepEqual([status, stoppedAt instanceof Date, rest], ['stopped', true, restOf(sandbox)])
  }
})

test('maximum age: a change moves the end or takes it away, and one that is over already is refused', async (context) => {
  const { service, orgId, create, endSoon, ended } = await startedWorld(context)
  /** One whose end has been moved. On a busy machine the first may have reached it before. */
  const moved = async (maxAgeSeconds: number) => {
    for (let seconds = 1; ; seconds *= 2) {
      try {
        const { id, expiresAt } = await create({ maxAgeSeconds: seconds })
        return { ...(await service.update(orgId, id, { maxAgeSeconds })), endedAt: expiresAt!.getTime() }
      } catch (error) {
        assert.ok(isServiceError(error, 'sandbox_stopped'))
      }
    }
  }
  const [longer, none, sooner] = [await moved(3600), await moved(0), await create({ maxAgeSeconds: 3600 })]
  assert.equal(maxAgeSecondsOf(longer), 3600)
  assert.equal(none.expiresAt, undefined)
  await endSoon(sooner)
  assert.equal((await ended(sooner)).reason, 'expired')
  await sleep(Math.max(longer.endedAt, none.endedAt) - Date.now() + 500)
  for (const { id } of [longer, none]) assert.equal((await service.get(orgId, id)).status, 'running')
  const refused = service.update(orgId, longer.id, { maxAgeSeconds: 1 })
  await assert.rejects(refused, throwsCode('invalid_request', /^maxAgeSeconds .*age of the sandbox, which is/))
  const wrong = [
    [{ maxAgeSeconds: -1 }, /maxAgeSeconds/],
    [{ maxAgeSeconds: 31_536_001 }, /maxAgeSeconds/],
    [{ onIdle: 'sleep' as never }, /onIdle/],
    [{ timeoutSeconds: -1 }, /timeout/],
  ] as const
  for (const [input, field] of wrong) {
    await assert.rejects(service.create(orgId, input), throwsCode('invalid_request', field))
    await assert.rejects(service.update(orgId, none.id, input), throwsCode('invalid_request', field))
  }
})

test('on idle: stop ends the sandbox for good once nobody uses it', async (context) => {
  const { service, machines, orgId, create, ended, lastEvent } = await startedWorld(context)
  machines.before.hibernate = () => Promise.reject(new Error('it was hibernated'))
  machines.clientProcesses = [guestProcess(newId('es-'))]
  const sandbox = await create({ timeoutSeconds: 1, onIdle: 'stop' })
  const asked = Promise.withResolvers<void>()
  machines.before.processes = async () => asked.resolve()
  await asked.promise
  const release = service.previews.keepAlive(sandbox.id)
  machines.clientProcesses = []
  await sleep(1100)
  assert.equal((await service.get(orgId, sandbox.id)).status, 'running')
  release()
  const { reason, reasonMessage } = await ended(sandbox)
  assert.deepEqual([reason, reasonMessage], ['idle', 'it was idle for 1 seconds, after which it stops'])
  assert.deepEqual(await lastEvent(sandbox), stoppedBy('idle', 'idle_timeout'))
  await assert.rejects(service.wake(orgId, sandbox.id), throwsCode('sandbox_stopped', /idle for 1 seconds/))
})

test('on idle: a use or a change in the last moment keeps the sandbox', async (context) => {
  const { service, machines, orgId, create } = await startedWorld(context)
  machines.before.hibernate = () => Promise.reject(new Error('it was hibernated'))
  for (const keep of [
    (id: string) => void service.previews.keepAlive(id),
    (id: string) => service.update(orgId, id, { onIdle: 'hibernate' }),
    (id: string) => service.update(orgId, id, { timeoutSeconds: 3600 }),
    (id: string) => service.setTimeout(orgId, id, 0),
  ]) {
    const looked = Promise.withResolvers<void>()
    let looks = 0
    machines.before.processes = async () => {
      looks += 1
      // The second look is that of the holder of the lock.
      if (looks < 2) return
      await keep(sandbox.id)
      looked.resolve()
    }
    const sandbox = await create({ onIdle: 'stop' })
    await service.update(orgId, sandbox.id, { timeoutSeconds: 1 })
    await looked.promise
    machines.before.processes = async () => {}
    // It waits for the transition.
    await service.wake(orgId, sandbox.id)
    assert.equal((await service.get(orgId, sandbox.id)).status, 'running')
  }
})

test('on idle: a call that comes while the sandbox stops learns that it is stopped', async (context) => {
  const { service, machines, orgId, create, ended } = await startedWorld(context)
  const deletion = Promise.withResolvers<void>()
  const begun = Promise.withResolvers<void>()
  machines.before.delete = async () => {
    begun.resolve()
    await deletion.promise
  }
  const sandbox = await create({ timeoutSeconds: 1, onIdle: 'stop' })
  await begun.promise
  const call = assert.rejects(service.files.list(orgId, sandbox.id, '/'), throwsCode('sandbox_stopped'))
  deletion.resolve()
  await call
  await ended(sandbox)
})

test('lifetimes: defaults of the installation are for what clients leave out, not for announced ids', async (context) => {
  const defaults = { timeoutSeconds: 700, onIdle: 'stop', maxAgeSeconds: 3600 } as const
  const { service, orgId, create } = await startedWorld(context, defaults)
  const lifetimes = (sandbox: Sandbox) => [sandbox.timeoutSeconds, sandbox.onIdle, maxAgeSecondsOf(sandbox)]
  const source = await create()
  assert.deepEqual(lifetimes(source), [700, 'stop', 3600])
  const asked = { timeoutSeconds: 0, onIdle: 'hibernate', maxAgeSeconds: 0 } as const
  assert.deepEqual(lifetimes(await create(asked)), [0, 'hibernate', 0])
  assert.deepEqual(lifetimes(await create({ id: newId('sb-') })), [700, 'hibernate', 0])
  const { id } = await service.checkpoints.create(orgId, source.id, { name: 'one', kind: 'disk_only' })
  const fork = await service.checkpoints.start(orgId, id, { maxAgeSeconds: 60 })
  assert.deepEqual(lifetimes(fork.sandbox), [700, 'stop', 60])
})
