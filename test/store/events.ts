import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { acting, type LogFilter } from '../../src/events/index.ts'
import { newId } from '../../src/lib/id.ts'
import type { Store } from '../../src/store/index.ts'
import { checkpointOf, imageOf, newOrganisation, newSession, previewOf, previewUrl, sandboxOf } from './kit.ts'

export function eventTests(store: Store): void {
  const { sandboxes, events } = store

  const read = async (orgId: string, filter: LogFilter = {}, after = 0) =>
    (await events.page(orgId, { after, limit: 1000, filter })).events
  const typesOf = async (orgId: string, filter: LogFilter = {}) =>
    (await read(orgId, filter)).map(({ type }) => type as string)

  /** A running sandbox of a new organisation, whose log says nothing else. */
  const started = async (fields: Parameters<typeof sandboxOf>[1] = {}) => {
    const { id: orgId } = await newOrganisation(store)
    const sandbox = sandboxOf(orgId, { ...fields, status: 'creating' })
    await sandboxes.insertSandbox(sandbox)
    await sandboxes.updateSandbox(sandbox.id, { status: 'running' }, ['creating'])
    return { orgId, sandbox }
  }

  suite('events', () => {
    test('event: a change of a sandbox is in the log, with all of its envelope', async () => {
      const by = { actor: { type: 'key', id: 'key_1' }, cause: 'request' } as const
      const { orgId, sandbox } = await acting(by, () => started())
      const [created, ready, ...more] = await read(orgId)
      assert.ok(created && ready && more.length === 0)
      const { ts, ...rest } = created
      assert.ok(Math.abs(ts.getTime() - Date.now()) < 60_000)
      const of = { orgId, sandboxId: sandbox.id, subject: sandbox.id, ...by }
      assert.deepEqual(rest, { number: 1, type: 'sandbox.created', ...of, data: { template: 'base' } })
      assert.deepEqual({ ...ready, ts }, { number: 2, ts, type: 'sandbox.ready', ...of, data: {} })
    })

    test('event: a change of an expected record says the same, also where the record is another by now', async () => {
      const { id: orgId } = await newOrganisation(store)
      const expected = sandboxOf(orgId, { status: 'creating', image: 'python' })
      const { id } = expected
      await sandboxes.insertSandbox(expected)
      const run = () => sandboxes.updateSandbox(id, { status: 'running', cpuCount: 2 }, ['creating'], { expected })
      const running = await run()
      assert.deepEqual([running?.id, running?.status, running?.cpuCount], [id, 'running', 2])
      assert.equal(await run(), undefined, 'it is not creating any more')
      const stopped = await sandboxes.updateSandbox(id, { status: 'stopped' }, ['creating', 'running'], { expected })
      assert.equal(stopped?.status, 'stopped')
      const told = await read(orgId)
      assert.deepEqual(
        told.map(({ number, type, data }) => [number, type, data]),
        [
          [1, 'sandbox.created', { template: 'python' }],
          [2, 'sandbox.ready', {}],
          [3, 'sandbox.scaled', { cpuCount: 2, memoryMB: 1024 }],
          [4, 'sandbox.stopped', { reason: 'user_requested' }],
        ],
      )
    })

    test('event: the life of a sandbox is told in order, and what changes no state is not', async () => {
      const { orgId, sandbox } = await started()
      const to = sandboxes.updateSandbox.bind(sandboxes, sandbox.id)
      await to({ timeoutSeconds: 60 })
      await to({ status: 'running', startedAt: new Date() })
      await to({ status: 'hibernated' })
      await to({ status: 'running' }, ['hibernated'])
      await to({ memoryMb: 2048 })
      await acting({ actor: { type: 'server' }, cause: 'autoscale' }, () => to({ memoryMb: 4096 }))
      await to({ memoryMb: 4096 })
      assert.equal(await to({ status: 'hibernated' }, ['creating']), undefined)
      await to({ status: 'error', reason: 'oom', reasonMessage: 'no memory' })
      await to({ status: 'stopped' })
      const told = await read(orgId)
      const names = 'created ready hibernated resumed scaled autoscaled failed stopped'.split(' ')
      assert.deepEqual(
        told.map(({ number, type }) => [number, type]),
        names.map((name, index) => [index + 1, `sandbox.${name}`]),
      )
      const [, , , , scaled, autoscaled, failed, stopped] = told.map(({ data }) => data)
      assert.deepEqual(
        [scaled, autoscaled],
        [2048, 4096].map((memoryMB) => ({ cpuCount: 1, memoryMB })),
      )
      assert.deepEqual(failed, { reason: 'oom', message: 'no memory' })
      assert.deepEqual(stopped, { reason: 'user_requested' })
    })

    test('event: a create that fails has failed and was never created; one that is deleted meanwhile is stopped', async () => {
      for (const [change, type] of [
        [{ status: 'stopped', reason: 'runtime_failed' }, 'sandbox.failed'],
        [{ status: 'error', reason: 'runtime_failed' }, 'sandbox.failed'],
        [{ status: 'stopped' }, 'sandbox.stopped'],
      ] as const) {
        const sandbox = sandboxOf((await newOrganisation(store)).id, { status: 'creating' })
        await sandboxes.insertSandbox(sandbox)
        await sandboxes.updateSandbox(sandbox.id, change)
        assert.deepEqual(await typesOf(sandbox.orgId), [type])
      }
    })

    test('event: a fork names the sandbox of its checkpoint', async () => {
      const { orgId, sandbox } = await started()
      const checkpoint = checkpointOf(sandbox)
      await sandboxes.insertCheckpoint(checkpoint)
      const fork = sandboxOf(orgId, { status: 'creating', fromCheckpointId: checkpoint.id })
      await sandboxes.insertSandbox(fork)
      await sandboxes.updateSandbox(fork.id, { status: 'running' })
      const [, , forked] = await read(orgId, { sandboxId: fork.id })
      assert.deepEqual([forked?.type, forked?.data], ['sandbox.forked', { parentId: sandbox.id }])
    })

    test('event: a checkpoint is told when it is ready, fails or goes, once each', async () => {
      const { orgId, sandbox } = await started()
      const [good, bad] = [
        checkpointOf(sandbox, { status: 'processing' }),
        checkpointOf(sandbox, { status: 'processing' }),
      ]
      for (const checkpoint of [good, bad]) await sandboxes.insertCheckpoint(checkpoint)
      await sandboxes.updateCheckpoint(good.id, { status: 'ready', sizeBytes: 1 })
      await sandboxes.updateCheckpoint(good.id, { status: 'ready' })
      await sandboxes.updateCheckpoint(bad.id, { status: 'failed', error: 'no room' })
      await sandboxes.deleteCheckpoint(good.id)
      assert.equal(await sandboxes.deleteCheckpoint(good.id), false)
      const told = (await read(orgId))
        .slice(2)
        .map(({ type, subject, sandboxId, data }) => ({ type, subject, sandboxId, data }))
      const of = ({ id, name, kind }: typeof good) => ({ checkpointId: id, name, kind })
      assert.deepEqual(told, [
        { type: 'sandbox.checkpoint.created', subject: good.id, sandboxId: sandbox.id, data: of(good) },
        { type: 'checkpoint.failed', subject: bad.id, sandboxId: sandbox.id, data: { ...of(bad), message: 'no room' } },
        { type: 'checkpoint.deleted', subject: good.id, sandboxId: sandbox.id, data: of(good) },
      ])
    })

    test('event: volumes, previews, images, sessions and keys are told too', async () => {
      const { orgId, sandbox } = await started()
      const volume = { id: newId('vol-'), orgId, name: 'data', sizeMb: 1, createdAt: new Date() }
      const snapshot = { id: newId('vol-'), orgId, volumeId: volume.id, name: 'one', sizeMb: 1, createdAt: new Date() }
      await sandboxes.insertVolume(volume)
      await sandboxes.insertVolumeSnapshot(snapshot)
      await sandboxes.deleteVolume(snapshot.id)
      const mounted = { id: volume.id, name: 'data', path: '/data', readOnly: false }
      const holder = sandboxOf(orgId, { status: 'creating', volumes: [mounted] })
      await sandboxes.insertSandbox(holder)
      await sandboxes.updateSandbox(holder.id, { status: 'stopped' })
      await sandboxes.detachVolumes(holder.id)
      await sandboxes.detachVolumes(holder.id)
      await sandboxes.deleteVolume(volume.id)
      await sandboxes.putPreview(previewOf(sandbox, 80), previewUrl)
      await sandboxes.deletePreview(sandbox.id, 80)
      await sandboxes.deletePreview(sandbox.id, 80)
      const image = imageOf(orgId)
      await store.images.insertImage(image)
      await store.images.updateImage(image.id, { lastUsedAt: new Date() })
      await store.images.updateImage(image.id, { status: 'ready' })
      await store.images.updateImage(image.id, { isPublic: true })
      await store.images.updateImage(image.id, { isPublic: true })
      await store.images.updateImage(image.id, { isPublic: false, status: 'failed', failure: { message: 'gone' } })
      await store.images.deleteImage(image.id)
      const session = await newSession(store, orgId)
      const commit = store.sessions.commit.bind(store.sessions, session.id)
      await commit({ session: { activity: 'working' }, addStream: [{ type: 'ready' }] })
      await commit({ addStream: [{ type: 'ready' }] })
      await commit({ session: { activity: 'working' } })
      await commit({ session: { activity: 'idle' } })
      await commit({ session: { activity: 'ended', status: 'ended' } })
      await store.sessions.deleteSessions([session.id])
      const keys = [1, 2].map(() => ({
        id: newId('key_'),
        orgId,
        keyHash: newId('key_'),
        isDefault: true,
        createdAt: new Date(),
      }))
      for (const key of keys) await store.organisations.insertApiKey(key)
      await store.organisations.deleteOtherDefaultKeys(orgId, keys[0]?.keyHash ?? '')
      const told = await read(orgId)
      assert.deepEqual(
        told.slice(2).map(({ type, subject }) => `${type} ${subject}`),
        [
          ['volume.created', volume.id],
          ['volume.snapshot.created', snapshot.id],
          ['volume.snapshot.deleted', snapshot.id],
          ['volume.attached', volume.id],
          ['sandbox.stopped', holder.id],
          ['volume.detached', volume.id],
          ['volume.deleted', volume.id],
          ['sandbox.preview_url.changed', sandbox.id],
          ['sandbox.preview_url.changed', sandbox.id],
          ['image.created', image.id],
          ['image.ready', image.id],
          ['image.published', image.id],
          ['image.failed', image.id],
          ['image.unpublished', image.id],
          ['image.deleted', image.id],
          ...['created', 'starting', 'working', 'idle', 'ended', 'deleted'].map((name) => [
            `session.${name}`,
            session.id,
          ]),
          ['key.created', keys[0]?.id],
          ['key.created', keys[1]?.id],
          ['key.deleted', keys[1]?.id],
        ].map((parts) => parts.join(' ')),
      )
      const urls = told.flatMap(({ data }) => ('url' in data ? [data['url']] : []))
      assert.deepEqual(urls, [previewUrl, null])
    })

    test('event: what a transaction undoes leaves neither a row nor a gap', async () => {
      const { orgId, sandbox } = await started()
      await sandboxes.insertCheckpoint(checkpointOf(sandbox, { name: 'one' }))
      await assert.rejects(sandboxes.insertCheckpoint(checkpointOf(sandbox, { name: 'one' })))
      await sandboxes.insertCheckpoint(checkpointOf(sandbox, { name: 'two' }))
      assert.deepEqual(
        (await read(orgId)).map(({ number }) => number),
        [1, 2, 3, 4],
      )
    })

    test('event: concurrent writers get numbers without a gap, and each organisation its own', async () => {
      const organisations = [await newOrganisation(store), await newOrganisation(store)]
      const writers = Array.from({ length: 60 }, async (_, index) => {
        const sandbox = sandboxOf(organisations[index % 2]?.id ?? '', { status: 'creating' })
        await sandboxes.insertSandbox(sandbox)
        await sandboxes.updateSandbox(sandbox.id, { status: 'running' })
      })
      await Promise.all(writers)
      for (const { id } of organisations) {
        const numbers = (await read(id)).map(({ number }) => number)
        assert.deepEqual(
          numbers,
          Array.from({ length: 60 }, (_, index) => index + 1),
        )
      }
    })

    test('event: filters by type, sandbox, session and the tags of then', async () => {
      const { orgId, sandbox } = await started()
      const session = await newSession(store, orgId, { sandboxId: sandbox.id })
      await sandboxes.updateSandbox(sandbox.id, { tags: { env: 'prod', team: '' } })
      await sandboxes.updateSandbox(sandbox.id, { status: 'hibernated' })
      await sandboxes.updateSandbox(sandbox.id, { tags: { env: 'test' } })
      await sandboxes.updateSandbox(sandbox.id, { status: 'running' })
      const hibernated = ['sandbox.hibernated']
      assert.deepEqual(await typesOf(orgId, { types: ['sandbox.hibernated', 'sandbox.stopped'] }), hibernated)
      assert.deepEqual(await typesOf(orgId, { sessionId: session.id }), ['session.created', 'session.starting'])
      assert.equal((await typesOf(orgId, { sandboxId: sandbox.id })).length, 6)
      assert.deepEqual(await typesOf(orgId, { tag: { key: 'env', value: 'prod' } }), hibernated)
      assert.deepEqual(await typesOf(orgId, { tag: { key: 'team' } }), hibernated)
      assert.deepEqual(await typesOf(orgId, { tag: { key: 'team', value: '' } }), hibernated)
      assert.deepEqual(await typesOf(orgId, { tag: { key: 'env' } }), ['sandbox.hibernated', 'sandbox.resumed'])
      assert.deepEqual(await typesOf(orgId, { tag: { key: 'none' } }), [])
      assert.deepEqual(await typesOf((await newOrganisation(store)).id, { sandboxId: sandbox.id }), [])
    })

    test('event: pages go on where the last one ended, and tell where the log ends', async () => {
      const { orgId } = await started()
      const other = sandboxOf(orgId)
      await sandboxes.insertSandbox(other)
      const page = (after: number, limit: number, filter: LogFilter = {}) =>
        events.page(orgId, { after, limit, filter })
      const first = await page(0, 3)
      assert.deepEqual([first.events.length, first.next, first.newest, first.oldest], [3, 3, 4, 1])
      const last = await page(first.next, 3)
      assert.deepEqual([last.events.map(({ number }) => number), last.next], [[4], 4])
      const none = await page(0, 3, { types: ['key.created'] })
      assert.deepEqual([none.events, none.next], [[], 4], 'a filter that fits nothing moves on to the end')
      const empty = await events.page((await newOrganisation(store)).id, { after: 0, limit: 1, filter: {} })
      assert.deepEqual(empty, { events: [], next: 0, newest: 0, oldest: 1 })
    })

    test('event: the oldest are purged by age and by number, and numbers go on', async () => {
      const organisations = [await newOrganisation(store), await newOrganisation(store)]
      for (const { id } of organisations) {
        for (let made = 0; made < 3; made++) await sandboxes.insertSandbox(sandboxOf(id))
      }
      assert.equal(await events.purge(new Date(0), 1_000_000), 0, 'nothing is old')
      await events.purge(new Date(0), 4)
      for (const { id } of organisations) {
        assert.deepEqual(
          (await read(id)).map(({ number }) => number),
          [3, 4, 5, 6],
        )
        const { oldest, newest } = await events.page(id, { after: 0, limit: 1, filter: {} })
        assert.deepEqual([oldest, newest], [3, 6])
      }
      await events.purge(new Date(Date.now() + 60_000), 1_000_000)
      for (const { id } of organisations) {
        assert.deepEqual(await events.page(id, { after: 0, limit: 9, filter: {} }), {
          events: [],
          next: 6,
          newest: 6,
          oldest: 7,
        })
        await sandboxes.insertSandbox(sandboxOf(id))
        assert.deepEqual(
          (await read(id)).map(({ number }) => number),
          [7, 8],
        )
      }
    })

    test('event: text that PostgreSQL refuses is kept as it can be, and a long message is cut', async () => {
      const { orgId, sandbox } = await started()
      const reasonMessage = `a\0b\ud800${'x'.repeat(5000)}`
      await sandboxes.updateSandbox(sandbox.id, { status: 'error', reason: 'runtime_failed', reasonMessage })
      const [failed] = await read(orgId, { types: ['sandbox.failed'] })
      assert.equal(failed?.data['message'], `a\ufffdb\ufffd${'x'.repeat(996)}…`)
    })
  })
}
