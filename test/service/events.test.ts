import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Acting, acting, type LogEvent } from '../../src/events/index.ts'
import type { Store } from '../../src/store/index.ts'
import { worlds } from './world.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'

const { makeWorld, makeSandbox } = worlds()

const byKey: Acting = { actor: { type: 'key', id: 'key_1' }, cause: 'request' }

/** Each event of a sandbox without its prefix, with who has caused it and why. */
async function told({ store, orgId }: { store: Store; orgId: string }, sandboxId?: string) {
  const { events } = await store.events.page(orgId, { after: 0, limit: 1000, filter: sandboxId ? { sandboxId } : {} })
  return events.map(({ type, actor, cause }: LogEvent) => `${type.replace('sandbox.', '')} ${actor.type} ${cause}`)
}

test('events: what a caller asks for has its name, also what goes on in the background; a clock has the server', async () => {
  const world = await makeWorld()
  const { service, orgId } = world
  const sandbox = await acting(byKey, async () => {
    const started = await service.create(orgId, {})
    const { id } = started.sandbox
    const checkpoint = await service.checkpoints.create(orgId, id, { name: 'one', kind: 'disk_only' })
    await service.checkpoints.settled(orgId, checkpoint.id)
    await service.setTimeout(orgId, id, 1)
    return started.sandbox
  })
  await eventually(async () => (await service.get(orgId, sandbox.id)).status === 'hibernated')
  // Otherwise it would sleep again a second after its wake.
  await service.setTimeout(orgId, sandbox.id, 300)
  await service.previews.dial({ sandbox, port: 80 }).catch(() => undefined)
  assert.deepEqual(await told(world, sandbox.id), [
    'created key request',
    'ready key request',
    'checkpoint.created key request',
    'hibernated server idle_timeout',
    'resumed server preview',
  ])
})

test('events: an end by itself, and what the next start finds, are told as that', async () => {
  const world = await makeSandbox()
  const { service, machines, orgId, sandbox } = world
  machines.exit({ sandboxId: sandbox.id, reason: 'oom', message: 'out of memory' })
  await eventually(async () => (await service.get(orgId, sandbox.id)).status === 'error')
  const { sandbox: lost } = await service.create(orgId, {})
  await service.close()
  const next = await makeWorld({}, { orgId })
  next.machines.report = { lost: [lost.id] }
  await next.service.start()
  assert.deepEqual((await told(world, sandbox.id)).at(-1), 'failed server exit')
  assert.deepEqual((await told(world, lost.id)).at(-1), 'failed server recovery')
  await next.service.close()
})

test('events: a create that cannot start has failed, and was never created', async () => {
  const world = await makeWorld()
  const { service, machines, orgId } = world
  machines.before.create = () => Promise.reject(new Error('no'))
  await assert.rejects(service.create(orgId, {}))
  assert.deepEqual((await told(world)).slice(1), ['failed server server'], 'behind the key of the organisation')
})

test('events: sizes are told with who has changed them, and an unchanged size is not told', async () => {
  const world = await makeSandbox()
  const { service, orgId, sandbox, store } = world
  await acting(byKey, () => service.scaling.scale(orgId, sandbox.id, 2048))
  await acting(byKey, () => service.scaling.scale(orgId, sandbox.id, 2048))
  const inside: Acting = { actor: { type: 'sandbox', id: sandbox.id }, cause: 'inside' }
  await acting(inside, () => service.scaling.limitFromInside(sandbox.id, { memoryMb: 1024 }))
  assert.deepEqual((await told(world, sandbox.id)).slice(2), ['scaled key request', 'scaled sandbox inside'])
  const { events } = await store.events.page(orgId, { after: 0, limit: 9, filter: { types: ['sandbox.scaled'] } })
  assert.deepEqual(
    events.map(({ data }) => data['memoryMB']),
    [2048, 1024],
  )
})
