import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { newId } from '../../src/lib/id.ts'
import type { Store } from '../../src/store/index.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { allPages, checkpointOf, idsOf, imageOf, newSandbox, newSession, patchOf, sandboxOf } from './kit.ts'

export function checkpointTests(store: Store): void {
  const { sandboxes } = store
  const newCheckpoint = async () => {
    const checkpoint = checkpointOf(await newSandbox(store))
    await sandboxes.insertCheckpoint(checkpoint)
    return checkpoint
  }

  suite('checkpoints', () => {
    test('checkpoint: it is read as it was written', async () => {
      const sandbox = await newSandbox(store)
      const full = checkpointOf(sandbox, {
        kind: 'full',
        status: 'failed',
        error: 'why',
        sizeBytes: 2 ** 40,
        expiresAt: new Date('2027-01-01'),
      })
      const bare = checkpointOf(sandbox)
      await sandboxes.insertCheckpoint(full)
      await sandboxes.insertCheckpoint(bare)
      assert.deepEqual(await sandboxes.checkpoint(full.id), full)
      assert.deepEqual(await sandboxes.checkpoint(bare.id, sandbox.orgId), bare)
      assert.equal(await sandboxes.checkpoint(bare.id, newId('org_')), undefined)
      assert.equal(await sandboxes.checkpoint(newId('cp-')), undefined)
    })

    test('checkpoint: a name is unique in a sandbox and free in another', async () => {
      const sandbox = await newSandbox(store)
      const first = checkpointOf(sandbox, { name: 'a' })
      await sandboxes.insertCheckpoint(first)
      assert.equal(await sandboxes.checkpointNamed('a', sandbox.id, sandbox.orgId), first.id)
      assert.equal(await sandboxes.checkpointNamed('a', sandbox.id, newId('org_')), undefined)
      await refuses(sandboxes.insertCheckpoint(checkpointOf(sandbox, { name: 'a' })), 'conflict', /name/)
      await sandboxes.insertCheckpoint(checkpointOf(await newSandbox(store), { name: 'a' }))
    })

    test('checkpoint: lists hold one sandbox and organisation, oldest first', async () => {
      const sandbox = await newSandbox(store)
      const later = checkpointOf(sandbox, { createdAt: new Date('2026-03-01') })
      const earlier = checkpointOf(sandbox, { createdAt: new Date('2026-02-01') })
      await sandboxes.insertCheckpoint(later)
      await sandboxes.insertCheckpoint(earlier)
      assert.deepEqual(await sandboxes.listCheckpoints(sandbox.id, sandbox.orgId), [earlier, later])
      assert.deepEqual(await sandboxes.listCheckpoints(sandbox.id, newId('org_')), [])
      const ids = await sandboxes.checkpointIds()
      assert.ok(ids.includes(earlier.id) && ids.includes(later.id))
    })

    test('checkpoint: those of one owner are found in all sandboxes, oldest first', async () => {
      const [one, two] = [await newSandbox(store), await newSandbox(store)]
      const later = checkpointOf(one, { owner: 'session', createdAt: new Date('2026-01-02') })
      const earlier = checkpointOf(two, { owner: 'session', createdAt: new Date('2026-01-01') })
      const others = (['client', 'image', 'wake'] as const).map((owner) => checkpointOf(one, { owner }))
      for (const checkpoint of [later, earlier, ...others]) await sandboxes.insertCheckpoint(checkpoint)
      assert.deepEqual(await sandboxes.checkpointsOwnedBy('session'), [earlier, later])
      const images = await sandboxes.checkpointsOwnedBy('image')
      assert.deepEqual(
        images.filter(({ sandboxId }) => sandboxId === one.id),
        others.slice(1, 2),
      )
    })

    test('checkpoint list: it pages newest first through equal times, by sandbox and owner, without other organisations', async () => {
      const sandbox = await newSandbox(store)
      const { orgId } = sandbox
      const made = Array.from({ length: 4 }, () => checkpointOf(sandbox))
      const image = checkpointOf(sandbox, { owner: 'image', createdAt: new Date('2026-06-01') })
      const elsewhere = checkpointOf({ ...sandbox, id: newId('sb-') }, { createdAt: new Date('2026-05-01') })
      for (const checkpoint of [...made, image, elsewhere]) await sandboxes.insertCheckpoint(checkpoint)
      await newCheckpoint()
      const sorted = idsOf(made).toSorted().toReversed()
      const pages = await allPages((page) => sandboxes.checkpointPage({ orgId, limit: 4, ...page }))
      assert.deepEqual(pages.map(idsOf), [[image.id, elsewhere.id, ...sorted.slice(0, 2)], sorted.slice(2)])
      const some = async (query: object) => idsOf((await sandboxes.checkpointPage({ orgId, limit: 9, ...query })).items)
      assert.deepEqual(await some({ sandboxId: sandbox.id, owner: 'client' }), sorted)
      assert.deepEqual(await some({ owner: 'image' }), [image.id])
      assert.deepEqual(await some({ owner: 'session' }), [])
      const turn = checkpointOf(sandbox, { owner: 'turn', createdAt: new Date('2026-07-01') })
      await sandboxes.insertCheckpoint(turn)
      assert.deepEqual(await some({ owner: 'turn' }), [turn.id])
      assert.deepEqual(await some({ limit: 1 }), [turn.id])
      assert.deepEqual(await some({ limit: 1, withoutTurns: true }), [image.id])
      assert.equal(await sandboxes.countCheckpoints(orgId), 5)
    })

    test('checkpoint: what makes use of it is counted, without what has ended', async () => {
      const sandbox = await newSandbox(store)
      const { orgId } = sandbox
      const [used, unused] = [checkpointOf(sandbox), checkpointOf(sandbox)]
      for (const checkpoint of [used, unused]) await sandboxes.insertCheckpoint(checkpoint)
      const fromCheckpointId = used.id
      const fork = sandboxOf(orgId, { fromCheckpointId, status: 'hibernated' })
      const ended = sandboxOf(orgId, { fromCheckpointId, status: 'stopped' })
      for (const one of [fork, ended]) await sandboxes.insertSandbox(one)
      for (const one of [fork, fork, ended]) await sandboxes.insertCheckpoint(checkpointOf(one))
      await newSession(store, orgId, { checkpointId: used.id })
      await newSession(store, orgId, { checkpointId: used.id, status: 'ended' })
      await store.images.insertImage(imageOf(orgId, { checkpointId: used.id }))
      const found = await sandboxes.checkpointDependents([used.id, unused.id])
      assert.deepEqual([...found], [[used.id, { sandboxes: 1, sessions: 1, images: 1, checkpoints: 2 }]])
    })

    test('checkpoint: it is found by state and updated', async () => {
      const sandbox = await newSandbox(store)
      const checkpoint = checkpointOf(sandbox, { status: 'processing' })
      await sandboxes.insertCheckpoint(checkpoint)
      const processing = await sandboxes.checkpointsIn('processing')
      assert.ok(processing.some(({ id }) => id === checkpoint.id))
      const failed = await sandboxes.updateCheckpoint(checkpoint.id, { status: 'failed', error: 'why' })
      assert.deepEqual(failed, { ...checkpoint, status: 'failed', error: 'why' })
      const ready = await sandboxes.updateCheckpoint(checkpoint.id, {
        status: 'ready',
        sizeBytes: 2 ** 33,
        error: undefined,
      })
      assert.deepEqual(ready, { ...checkpoint, status: 'ready', sizeBytes: 2 ** 33 })
      assert.deepEqual(await sandboxes.updateCheckpoint(checkpoint.id, {}), ready)
      assert.deepEqual(await sandboxes.checkpoint(checkpoint.id), ready)
      assert.equal(await sandboxes.updateCheckpoint(newId('cp-'), { status: 'ready' }), undefined)
    })

    test('checkpoint: a delete removes its patches and returns whether it existed', async () => {
      const { id } = await newCheckpoint()
      await sandboxes.insertPatch(patchOf(id))
      assert.equal(await sandboxes.deleteCheckpoint(id), true)
      assert.equal(await sandboxes.deleteCheckpoint(id), false)
      assert.equal(await sandboxes.checkpoint(id), undefined)
      assert.deepEqual(await sandboxes.listPatches(id), [])
    })

    test('checkpoint: a delete of an expired one finds that its time was moved', async () => {
      const { id } = await newCheckpoint()
      const now = new Date('2026-07-01')
      assert.equal(await sandboxes.deleteCheckpoint(id, now), false)
      await sandboxes.updateCheckpoint(id, { expiresAt: new Date('2026-07-02') })
      assert.equal(await sandboxes.deleteCheckpoint(id, now), false)
      await sandboxes.updateCheckpoint(id, { expiresAt: now })
      assert.equal(await sandboxes.deleteCheckpoint(id, now), true)
    })

    test('checkpoint: a deleted one is listed until it is forgotten', async () => {
      const [one, other] = [await newCheckpoint(), await newCheckpoint()]
      for (const { id } of [one, other]) await sandboxes.deleteCheckpoint(id)
      const deleted = async () => {
        const ids = await sandboxes.deletedCheckpointIds()
        return [ids.includes(one.id), ids.includes(other.id)]
      }
      assert.deepEqual(await deleted(), [true, true])
      await sandboxes.forgetCheckpoints([one.id])
      assert.deepEqual(await deleted(), [false, true])
    })
  })

  suite('patches', () => {
    test('patch: it gets the next number and is read as it was written', async () => {
      const { id } = await newCheckpoint()
      const first = { ...patchOf(id, 'echo "€" && exit 0\n'), description: 'd', strategy: 'on_resume' as const }
      const second = patchOf(id)
      assert.deepEqual(await sandboxes.insertPatch(first), { ...first, sequence: 1 })
      await sandboxes.insertPatch(second)
      assert.deepEqual(await sandboxes.listPatches(id), [
        { ...first, sequence: 1 },
        { ...second, sequence: 2 },
      ])
    })

    test('patch: the number of a deleted patch is not reused', async () => {
      const { id } = await newCheckpoint()
      await sandboxes.insertPatch(patchOf(id))
      const last = await sandboxes.insertPatch(patchOf(id))
      assert.equal(await sandboxes.deletePatch(id, last.id), true)
      assert.equal(await sandboxes.deletePatch(id, last.id), false)
      assert.equal((await sandboxes.insertPatch(patchOf(id))).sequence, 3)
    })

    test('patch: concurrent patches get distinct numbers', async () => {
      const { id } = await newCheckpoint()
      const patches = await Promise.all(Array.from({ length: 20 }, () => sandboxes.insertPatch(patchOf(id))))
      const sequences = patches.map(({ sequence }) => sequence).toSorted((a, b) => a - b)
      assert.deepEqual(sequences, [...Array(21).keys()].slice(1))
    })

    test('patch: it belongs to its checkpoint', async () => {
      const [one, other] = [await newCheckpoint(), await newCheckpoint()]
      const patch = await sandboxes.insertPatch(patchOf(one.id))
      assert.equal(await sandboxes.deletePatch(other.id, patch.id), false)
      assert.deepEqual(await sandboxes.listPatches(other.id), [])
      assert.deepEqual(await sandboxes.listPatches(one.id), [patch])
    })

    test('patch: an unknown or deleted checkpoint is not found', async () => {
      const { id } = await newCheckpoint()
      await sandboxes.deleteCheckpoint(id)
      for (const checkpointId of [id, newId('cp-')]) {
        await refuses(sandboxes.insertPatch(patchOf(checkpointId)), 'not_found')
      }
    })

    test('patch: a taken id is a conflict and uses no number', async () => {
      const { id } = await newCheckpoint()
      const patch = patchOf(id)
      await sandboxes.insertPatch(patch)
      await refuses(sandboxes.insertPatch(patch), 'conflict')
      assert.equal((await sandboxes.insertPatch(patchOf(id))).sequence, 2)
    })
  })
}
