import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { newId } from '../../src/lib/id.ts'
import { sandboxStatuses, type Sandbox } from '../../src/sandbox/sandbox.ts'
import type { Store } from '../../src/store/index.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { allPages, checkpointOf, idsOf, newOrganisation, newSandbox, previewOf, sandboxOf, previewUrl } from './kit.ts'

/** Every optional field is there, with values that a careless mapping would change. */
function fullSandbox(orgId: string): Sandbox {
  return sandboxOf(orgId, {
    name: 'full-1',
    status: 'error',
    isAutoscaled: true,
    autoscaleMinMb: 1024,
    autoscaleMaxMb: 8192,
    reason: 'oom',
    reasonMessage: 'out of memory — «node»',
    cpuCount: 0.5,
    timeoutSeconds: 2_592_000,
    onIdle: 'stop',
    expiresAt: new Date('2027-01-15T10:30:00.123Z'),
    envs: { A: '1', snake_case: 'x', camelCase: 'y', EMPTY: '' },
    metadata: { 'with "quotes"': "it's $1", '😀': '\\u0041' },
    tags: { team: 'web' },
    tagsUpdatedAt: new Date('2026-01-15T10:30:01.999Z'),
    fromCheckpointId: newId('cp-'),
    previewTokenHash: 'ab'.repeat(32),
    stoppedAt: new Date('2026-02-01T00:00:00.000Z'),
  })
}

export function sandboxTests(store: Store): void {
  const { sandboxes } = store

  suite('sandboxes', () => {
    const insert = async (...all: Sandbox[]) => {
      for (const sandbox of all) await sandboxes.insertSandbox(sandbox)
    }

    test('sandbox: it is read as it was written, with and without its optional fields', async () => {
      const { id: orgId } = await newOrganisation(store)
      const full = fullSandbox(orgId)
      const bare = sandboxOf(orgId)
      await insert(full, bare)
      assert.deepEqual(await sandboxes.sandbox(full.id), full)
      assert.deepEqual(await sandboxes.sandbox(bare.id, orgId), bare)
    })

    test('sandbox: an unknown one and one of another organisation are not found', async () => {
      const { id: orgId } = await newOrganisation(store)
      const sandbox = sandboxOf(orgId)
      await insert(sandbox)
      assert.equal(await sandboxes.sandbox(newId('sb-')), undefined)
      assert.equal(await sandboxes.sandbox(sandbox.id, newId('org_')), undefined)
    })

    test('sandbox: a taken id is a conflict', async () => {
      const sandbox = await newSandbox(store)
      await refuses(insert(sandbox), 'conflict')
    })

    test('sandbox: those with a maximum age are found by its end, unless they are stopped', async () => {
      const { id: orgId } = await newOrganisation(store)
      const of = (at: string, fields: Partial<Sandbox> = {}) =>
        sandboxOf(orgId, { expiresAt: new Date(`1970-01-0${at}T00:00:00Z`), ...fields })
      const [late, early, asleep] = [of('3'), of('1', { status: 'creating' }), of('2', { status: 'hibernated' })]
      await insert(late, early, asleep, of('1', { status: 'stopped' }), sandboxOf(orgId))
      const found = (await sandboxes.nextExpiring(3)).map(({ id, expiresAt }) => [id, expiresAt])
      assert.deepEqual(
        found,
        [early, asleep, late].map(({ id, expiresAt }) => [id, expiresAt]),
      )
      await sandboxes.updateSandbox(early.id, { expiresAt: undefined })
      assert.deepEqual(idsOf(await sandboxes.nextExpiring(1)), [asleep.id])
      for (const { id } of [late, asleep]) await sandboxes.updateSandbox(id, { expiresAt: undefined })
    })

    test('sandbox list: it pages newest first through equal creation times, without other organisations and states', async () => {
      const { id: orgId } = await newOrganisation(store)
      const listed = Array.from({ length: 7 }, (_, index) =>
        sandboxOf(orgId, { createdAt: new Date(Date.UTC(2026, 0, 1, 0, 0, index < 5 ? 1 : index)) }),
      )
      await insert(...listed)
      await insert(sandboxOf((await newOrganisation(store)).id), sandboxOf(orgId, { status: 'stopped' }))
      const statuses = ['running', 'hibernated'] as const
      const pages = await allPages((page) => sandboxes.listSandboxes({ orgId, statuses, limit: 2, ...page }))
      const newestFirst = listed.toSorted(
        (a, b) => b.createdAt.getTime() - a.createdAt.getTime() || (a.id < b.id ? 1 : -1),
      )
      assert.deepEqual(idsOf(pages.flat()), idsOf(newestFirst))
      assert.equal(pages.length, 4)
    })

    test('sandbox list: a page that ends at the last sandbox has no next page', async () => {
      const { id: orgId } = await newOrganisation(store)
      await insert(sandboxOf(orgId), sandboxOf(orgId))
      const page = await sandboxes.listSandboxes({ orgId, statuses: sandboxStatuses, limit: 2 })
      assert.equal(page.items.length, 2)
      assert.ok(!('nextCursor' in page))
    })

    test('sandbox name: it is unique in its organisation until the sandbox stops, and found until then', async () => {
      const { id: orgId } = await newOrganisation(store)
      const { id: otherId } = await newOrganisation(store)
      const first = sandboxOf(orgId, { name: 'web', status: 'creating' })
      await insert(first, sandboxOf(orgId), sandboxOf(orgId), sandboxOf(otherId, { name: 'web' }))
      const taken = () => refuses(insert(sandboxOf(orgId, { name: 'web' })), 'conflict', /^name /)
      for (const status of ['creating', 'running', 'hibernated', 'error'] as const) {
        await sandboxes.updateSandbox(first.id, { status })
        assert.equal(await sandboxes.sandboxNamed('web', orgId), first.id, status)
        assert.deepEqual([...(await sandboxes.sandboxNames([first.id, newId('sb-')]))], [[first.id, 'web']])
        await taken()
      }
      assert.equal(await sandboxes.sandboxNamed('web', newId('org_')), undefined)
      await sandboxes.updateSandbox(first.id, { status: 'stopped' })
      assert.equal(await sandboxes.sandboxNamed('web', orgId), undefined)
      assert.equal((await sandboxes.sandbox(first.id))?.name, 'web')
      const second = sandboxOf(orgId, { name: 'web' })
      await insert(second)
      assert.equal(await sandboxes.sandboxNamed('web', orgId), second.id)
      await sandboxes.updateSandbox(second.id, { name: undefined })
      assert.ok(!('name' in ((await sandboxes.sandbox(second.id)) ?? {})))
      const third = sandboxOf(orgId, { name: 'web' })
      await insert(third)
      await refuses(sandboxes.updateSandbox(second.id, { name: 'web' }), 'conflict', /^name /)
    })

    test('sandbox list: filters match metadata and tags wholly, on every page', async () => {
      const { id: orgId } = await newOrganisation(store)
      const strange = { 'a"b': "it's", '': '%_\\', é: '{}' }
      const matching = Array.from({ length: 3 }, (_, index) =>
        sandboxOf(orgId, {
          metadata: { ...strange, n: `${index}` },
          tags: { a: '1', b: '2' },
          createdAt: new Date(index),
        }),
      )
      const others = [
        sandboxOf(orgId),
        sandboxOf(orgId, { metadata: { 'a"b': 'its' }, tags: { a: '2', b: '2' } }),
        sandboxOf(orgId, { metadata: strange, tags: { a: '1' } }),
        sandboxOf((await newOrganisation(store)).id, { metadata: strange, tags: { a: '1', b: '2' } }),
      ]
      await insert(...matching, ...others)
      const query = { orgId, statuses: ['running'] as const, metadata: strange, tags: { a: '1' }, tagKeys: ['b'] }
      const pages = await allPages((page) => sandboxes.listSandboxes({ ...query, limit: 2, ...page }))
      assert.deepEqual(pages.map(idsOf), [idsOf(matching.toReversed().slice(0, 2)), idsOf(matching.slice(0, 1))])
      const none = await sandboxes.listSandboxes({ orgId, statuses: ['running'], limit: 9, metadata: { n: '' } })
      assert.deepEqual(none.items, [])
    })

    test('sandbox list: it is empty for no states', async () => {
      const { id: orgId } = await newOrganisation(store)
      await insert(sandboxOf(orgId))
      assert.deepEqual(await sandboxes.listSandboxes({ orgId, statuses: [], limit: 2 }), { items: [] })
      assert.deepEqual(await sandboxes.sandboxesIn([]), [])
      assert.equal(await sandboxes.countSandboxes(orgId, []), 0)
    })

    test('sandbox list: a foreign cursor is refused by name', async () => {
      const { id: orgId } = await newOrganisation(store)
      const cursors = [
        '',
        'nonsense',
        '!!!',
        Buffer.from('1:').toString('base64url'),
        Buffer.from('x:sb-1').toString('base64url'),
        Buffer.from('999999999999999:sb-1').toString('base64url'),
      ]
      for (const cursor of cursors) {
        await refuses(
          sandboxes.listSandboxes({ orgId, statuses: ['running'], limit: 2, cursor }),
          'invalid_request',
          /cursor/,
        )
      }
    })

    test('sandbox: it is found and counted by state', async () => {
      const { id: orgId } = await newOrganisation(store)
      const [running, hibernated, stopped] = (['running', 'hibernated', 'stopped'] as const).map((status) =>
        sandboxOf(orgId, { status }),
      ) as [Sandbox, Sandbox, Sandbox]
      await insert(running, hibernated, stopped)
      const found = await sandboxes.sandboxesIn(['running', 'hibernated'])
      assert.deepEqual(
        idsOf(found.filter((sandbox) => sandbox.orgId === orgId)),
        [running.id, hibernated.id].toSorted(),
      )
      assert.equal(await sandboxes.countSandboxes(orgId, ['running']), 1)
      assert.equal(await sandboxes.countSandboxes(orgId, sandboxStatuses), 3)
    })

    test('sandbox: those of all organisations are counted by state', async () => {
      const before = await sandboxes.sandboxCounts()
      const states = ['running', 'running', 'error'] as const
      for (const status of states) await insert(sandboxOf((await newOrganisation(store)).id, { status }))
      const after = await sandboxes.sandboxCounts()
      assert.deepEqual(after, { ...before, running: before.running + 2, error: before.error + 1 })
      assert.deepEqual(Object.keys(after).toSorted(), sandboxStatuses.toSorted())
    })

    test('sandbox update: it sets its fields, clears undefined ones, and leaves the rest', async () => {
      const sandbox = fullSandbox((await newOrganisation(store)).id)
      await insert(sandbox)
      const updated = await sandboxes.updateSandbox(sandbox.id, {
        status: 'running',
        reason: undefined,
        reasonMessage: undefined,
        tags: { a: 'b' },
        timeoutSeconds: 0,
        envs: undefined,
        isAutoscaled: false,
        isScalingLocked: true,
      })
      const { reason: _reason, reasonMessage: _message, ...rest } = sandbox
      const locked = { isAutoscaled: false, isScalingLocked: true }
      assert.deepEqual(updated, {
        ...rest,
        status: 'running',
        tags: { a: 'b' },
        timeoutSeconds: 0,
        envs: {},
        ...locked,
      })
      assert.deepEqual(await sandboxes.sandbox(sandbox.id), updated)
    })

    test('sandbox update: from another state it changes nothing', async () => {
      const sandbox = await newSandbox(store)
      assert.equal(
        await sandboxes.updateSandbox(sandbox.id, { status: 'running', memoryMb: 1 }, ['hibernated']),
        undefined,
      )
      assert.equal(await sandboxes.updateSandbox(sandbox.id, { memoryMb: 1 }, []), undefined)
      assert.equal(await sandboxes.updateSandbox(newId('sb-'), { memoryMb: 1 }), undefined)
      assert.deepEqual(await sandboxes.sandbox(sandbox.id), sandbox)
    })

    test('sandbox update: without changes it checks the state', async () => {
      const sandbox = await newSandbox(store)
      assert.deepEqual(await sandboxes.updateSandbox(sandbox.id, {}), sandbox)
      assert.deepEqual(await sandboxes.updateSandbox(sandbox.id, {}, ['running']), sandbox)
      assert.equal(await sandboxes.updateSandbox(sandbox.id, {}, ['stopped']), undefined)
    })

    test('sandbox update: of concurrent compare-and-set calls one wins', async () => {
      const sandbox = await newSandbox(store)
      const results = await Promise.all(
        Array.from({ length: 20 }, () => sandboxes.updateSandbox(sandbox.id, { status: 'hibernated' }, ['running'])),
      )
      assert.equal(results.filter((result) => result !== undefined).length, 1)
    })

    test('sandbox purge: it deletes stopped ones with their previews, and keeps checkpoints', async () => {
      const { id: orgId } = await newOrganisation(store)
      const old = sandboxOf(orgId, { status: 'stopped', stoppedAt: new Date('2001-01-01T00:00:00Z') })
      const recent = sandboxOf(orgId, { status: 'stopped', stoppedAt: new Date('2001-01-03T00:00:00Z') })
      const running = sandboxOf(orgId, { stoppedAt: new Date('2001-01-01T00:00:00Z') })
      await insert(old, recent, running)
      await sandboxes.putPreview(previewOf(old, 3000), previewUrl)
      const checkpoint = checkpointOf(old)
      await sandboxes.insertCheckpoint(checkpoint)
      const before = new Date('2001-01-02T00:00:00Z')
      assert.deepEqual(await sandboxes.stoppedSandboxIds(before), [old.id])
      assert.ok((await sandboxes.stoppedSandboxIds()).includes(recent.id))
      assert.equal(await sandboxes.purgeSandboxes([old.id, running.id, newId('sb-')]), 1)
      assert.equal(await sandboxes.purgeSandboxes([]), 0)
      assert.equal(await sandboxes.sandbox(old.id), undefined)
      assert.deepEqual(await sandboxes.listPreviews(old.id), [])
      assert.deepEqual(await sandboxes.checkpoint(checkpoint.id), checkpoint)
      assert.ok(await sandboxes.sandbox(recent.id))
      assert.ok(await sandboxes.sandbox(running.id))
    })

    test('tag keys: they count sandboxes and values that are not stopped', async () => {
      const { id: orgId } = await newOrganisation(store)
      await insert(
        sandboxOf(orgId, { tags: { team: 'web', stage: 'test' } }),
        sandboxOf(orgId, { tags: { team: 'web' }, status: 'hibernated' }),
        sandboxOf(orgId, { tags: { team: 'data', Team: 'x' } }),
        sandboxOf(orgId, { tags: { team: 'gone', only: 'here' }, status: 'stopped' }),
        sandboxOf((await newOrganisation(store)).id, { tags: { foreign: 'x' } }),
      )
      assert.deepEqual(await sandboxes.tagKeys(orgId), [
        { key: 'Team', sandboxCount: 1, valueCount: 1 },
        { key: 'stage', sandboxCount: 1, valueCount: 1 },
        { key: 'team', sandboxCount: 3, valueCount: 2 },
      ])
    })
  })
}
