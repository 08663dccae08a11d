import assert from 'node:assert/strict'
import { test } from 'node:test'
import { FakeStepMounts } from '../../test/support/fake-step-mounts.ts'
import { refuses } from '../lib/testing/refuses.ts'
import { Caches } from './cache.ts'
import { Mounts, type StepMount } from './mounts.ts'

const mebibyte = 1024 ** 2
const log = { debug() {}, info() {}, warn: (_: object, message: string) => assert.fail(message), error() {} }
const cacheMb = 100

function world() {
  const ended = new Set<string>()
  const driver = { stepMounts: new FakeStepMounts((id) => !ended.has(id)) }
  const caches = new Caches({ driver, cacheMb, log })
  const sandbox = { memoryMb: 256, diskMb: 512 }
  const use: ConstructorParameters<typeof Mounts>[0]['lifecycle']['use'] = async (_org, _id, work) =>
    await work({} as never, sandbox as never)
  const mounts = new Mounts({ lifecycle: { use }, driver, caches })
  const cache = (more: Partial<StepMount & { type: 'cache' }> = {}) =>
    ({ type: 'cache', key: 'k', target: '/cache', ...more }) as const
  const attach = (mount: StepMount, sandboxId = 'sb-1', signal?: AbortSignal) =>
    mounts.attach('org', sandboxId, mount, signal)
  const idsOf = (sandboxId: string) =>
    (driver.stepMounts.mounted.get(sandboxId) ?? []).map(({ source }) => (source.type === 'cache' ? source.id : ''))
  return { ended, fake: driver.stepMounts, caches, mounts, cache, attach, idsOf }
}

/** Whether a promise has settled by the time that all that can go on has gone on. */
async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  let settled = false
  void promise.finally(() => (settled = true)).catch(() => undefined)
  for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve))
  return settled
}

test('mounts: each becomes what the driver mounts, at a normal target, within the sizes of the sandbox', async () => {
  const { fake, attach, cache } = world()
  const content = Buffer.from('hidden')
  await attach(cache({ target: '/a//b/../c/', readOnly: true }))
  await attach({ type: 'tmpfs', target: '/tmp' })
  await attach({ type: 'tmpfs', target: '/tmp', sizeBytes: 5 })
  await attach({ type: 'tmpfs', target: '/tmp', sizeBytes: 2 ** 40 })
  const scratch = await attach({ type: 'scratch', target: '/src' })
  await attach({ type: 'secret', target: '/run/secrets/a', content })
  await scratch.show('/x//y', '/z/', { readOnly: false })
  const made = fake.mounted.get('sb-1')!.map(({ target, source }) => {
    const { id: _id, of: _of, ...rest } = source as { id?: string; of?: object }
    return [target, rest]
  })
  assert.deepEqual(made, [
    ['/a/c', { type: 'cache', readOnly: true }],
    ['/tmp', { type: 'tmpfs', bytes: 256 * mebibyte }],
    ['/tmp', { type: 'tmpfs', bytes: 5 }],
    ['/tmp', { type: 'tmpfs', bytes: 256 * mebibyte }],
    ['/src', { type: 'scratch', bytes: 512 * mebibyte }],
    ['/run/secrets/a', { type: 'secret', content, mode: 0o400, uid: 0, gid: 0 }],
    ['/z', { type: 'part', path: 'x/y', readOnly: false }],
  ])
  assert.deepEqual(
    [...fake.caches.values()].map(({ owner }) => owner),
    [{ mode: 0o755, uid: 0, gid: 0 }],
  )
})

test('mounts: what cannot be is refused, and a failure leaves no lease', async () => {
  const { ended, fake, caches, attach, cache } = world()
  for (const target of ['relative', '', '/a\0', `/${'x'.repeat(5000)}`, '/', '/proc/x', '/x/../dev']) {
    await refuses(attach(cache({ target })), 'invalid_request')
  }
  for (const more of [{ mode: -1 }, { uid: 65_536 }, { gid: 1.5 }, { key: 'x'.repeat(5000) }]) {
    await refuses(attach(cache(more)), 'invalid_request')
  }
  const content = Buffer.alloc(1024 * 1024 + 1)
  await refuses(attach({ type: 'secret', target: '/a', content }), 'too_large')
  ended.add('sb-1')
  await refuses(attach(cache({ sharing: 'locked' })), 'unavailable')
  await attach(cache({ sharing: 'locked' }), 'sb-2')
  for (let count = 1; count < 200; count += 1) await attach({ type: 'tmpfs', target: '/t' }, 'sb-2')
  await refuses(attach({ type: 'tmpfs', target: '/t' }, 'sb-2'), 'conflict')
  assert.equal(fake.mounted.get('sb-2')!.length, 200)
  assert.equal((await caches.list('org')).length, 1)
})

test('caches: shared ones are had together, a locked one waits in turn, private ones differ', async () => {
  const { attach, cache, idsOf } = world()
  const [one, two] = [await attach(cache(), 'sb-1'), await attach(cache(), 'sb-2')]
  assert.deepEqual(idsOf('sb-1'), idsOf('sb-2'))
  const locked = attach(cache({ sharing: 'locked' }), 'sb-3')
  await one.detach()
  await one.detach()
  assert.equal(await isSettled(locked), false)
  const late = attach(cache(), 'sb-4')
  const left = new AbortController()
  const abandoned = attach(cache({ sharing: 'locked' }), 'sb-5', left.signal)
  left.abort(new Error('gone'))
  await assert.rejects(abandoned, /gone/)
  const others = [
    await attach(cache({ sharing: 'private' }), 'sb-6'),
    await attach(cache({ sharing: 'private' }), 'sb-7'),
  ]
  assert.equal(new Set([...idsOf('sb-2'), ...idsOf('sb-6'), ...idsOf('sb-7')]).size, 3)
  const freed = idsOf('sb-6')
  await others[0]!.detach()
  await attach(cache({ sharing: 'private' }), 'sb-8')
  assert.deepEqual(idsOf('sb-8'), freed)
  await two.detach()
  await (await locked).detach()
  await (await late).detach()
})

test('caches: they are of one organisation and one key', async () => {
  const { mounts, fake, caches, cache } = world()
  await mounts.attach('org', 'sb-1', cache())
  await mounts.attach('other', 'sb-2', cache())
  await mounts.attach('org', 'sb-3', cache({ key: 'another' }))
  assert.equal(fake.caches.size, 3)
  const [mine] = await caches.list('org')
  assert.equal((await caches.list('org')).length, 2)
  await refuses(caches.remove('other', mine!.id), 'not_found')
  await refuses(caches.remove('org', 'ca-none'), 'not_found')
  await refuses(caches.remove('org', mine!.id), 'conflict')
  assert.deepEqual(await caches.removeAll('org'), [])
  for (const id of ['sb-1', 'sb-3']) await mounts.release(id)
  fake.mounted.clear()
  await caches.remove('org', mine!.id)
  assert.equal((await caches.removeAll('org')).length, 1)
  assert.deepEqual([(await caches.list('org')).length, (await caches.list('other')).length], [0, 1])
})

test('caches: those in use share what the bound leaves, the oldest go for a new one, and a full one is told', async () => {
  const { fake, caches, attach, cache } = world()
  const first = await attach(cache({ key: 'first' }))
  const [one] = fake.caches.values()
  assert.equal(one!.limitBytes, cacheMb * mebibyte)
  one!.usedBytes = 40 * mebibyte
  const second = await attach(cache({ key: 'second' }))
  const [, two] = fake.caches.values()
  const limits = [...fake.caches.values()].map(({ limitBytes = 0 }) => limitBytes)
  const used = one!.usedBytes + two!.usedBytes
  assert.ok(Math.abs(limits[0]! + limits[1]! - cacheMb * mebibyte) < 10, String(limits))
  assert.equal(limits[1], two!.usedBytes + Math.floor((cacheMb * mebibyte - used) / 2))
  assert.equal(await second.isFull(), false)
  two!.usedBytes = limits[1]!
  assert.equal(await second.isFull(), true)
  two!.usedBytes = 39 * mebibyte
  await second.detach()
  two!.lastUsedAt = new Date(0)
  await attach(cache({ key: 'third' }), 'sb-3')
  assert.deepEqual(
    (await caches.list('org')).some(({ id }) => id === two!.id),
    false,
  )
  assert.equal(fake.caches.has(one!.id), true)
  await first.detach()
})

test('caches: there are 256 of an organisation at most', async () => {
  const { fake, attach, cache } = world()
  for (let count = 0; count < 260; count += 1) await (await attach(cache({ key: String(count) }))).detach()
  assert.equal(fake.caches.size, 256)
  for (let count = 0; count < 256; count += 1) await attach(cache({ key: `x${count}` }), `sb-${count % 128}`)
  await refuses(attach(cache({ key: 'one more' })), 'conflict')
})

test('caches: those without use for long go, but none that a step has', async () => {
  const { fake, caches, attach, cache } = world()
  await attach(cache({ key: 'held' }))
  for (const key of ['old', 'new']) await (await attach(cache({ key }), 'sb-2')).detach()
  const [held, old, fresh] = [...fake.caches.values()]
  for (const one of [held, old]) one!.lastUsedAt = new Date(0)
  await caches.removeUnused(new Date(Date.now() - 60_000), new AbortController().signal)
  assert.deepEqual([...fake.caches.keys()], [held!.id, fresh!.id])
})

test('mounts: what a sandbox had is free when it is gone, and a later detach does nothing', async () => {
  const { mounts, fake, attach, cache } = world()
  const mounted = await attach(cache({ sharing: 'locked' }))
  const waiting = attach(cache({ sharing: 'locked' }), 'sb-2')
  assert.equal(await isSettled(waiting), false)
  fake.mounted.delete('sb-1')
  await mounts.release('sb-1')
  await waiting
  await mounted.detach()
  const third = attach(cache({ sharing: 'locked' }), 'sb-3')
  assert.equal(await isSettled(third), false)
  await (await waiting).detach()
  await (await third).detach()
})
