import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { isServiceError } from '../../src/errors.ts'
import { newId } from '../../src/lib/id.ts'
import type { OpenedStore } from './store.ts'
import { checkpointOf, newOrganisation, patchOf, sandboxOf } from './store-records.ts'

export function checkpointTests(store: OpenedStore): void {
  const newSandbox = async () => {
    const sandbox = sandboxOf((await newOrganisation(store())).id)
    await store().sandboxes.insertSandbox(sandbox)
    return sandbox
  }
  const newCheckpoint = async () => {
    const checkpoint = checkpointOf(await newSandbox())
    await store().sandboxes.insertCheckpoint(checkpoint)
    return checkpoint
  }

  suite('checkpoints', () => {
    test('a checkpoint is read as it was written', async () => {
      const sandbox = await newSandbox()
      const full = checkpointOf(sandbox, { kind: 'full', status: 'failed', error: 'why', sizeBytes: 2 ** 40 })
      const bare = checkpointOf(sandbox)
      await store().sandboxes.insertCheckpoint(full)
      await store().sandboxes.insertCheckpoint(bare)
      assert.deepEqual(await store().sandboxes.checkpoint(full.id), full)
      assert.deepEqual(await store().sandboxes.checkpoint(bare.id, sandbox.orgId), bare)
      assert.equal(await store().sandboxes.checkpoint(bare.id, newId('org_')), undefined)
      assert.equal(await store().sandboxes.checkpoint(newId('cp-')), undefined)
    })

    test('a name is taken once in a sandbox and free in another', async () => {
      const sandbox = await newSandbox()
      await store().sandboxes.insertCheckpoint(checkpointOf(sandbox, { name: 'a' }))
      await assert.rejects(
        store().sandboxes.insertCheckpoint(checkpointOf(sandbox, { name: 'a' })),
        (error) => isServiceError(error, 'conflict') && error.message.includes('name'),
      )
      await store().sandboxes.insertCheckpoint(checkpointOf(await newSandbox(), { name: 'a' }))
    })

    test('lists are of one sandbox and organisation, oldest first', async () => {
      const sandbox = await newSandbox()
      const later = checkpointOf(sandbox, { createdAt: new Date('2026-03-01') })
      const earlier = checkpointOf(sandbox, { createdAt: new Date('2026-02-01') })
      await store().sandboxes.insertCheckpoint(later)
      await store().sandboxes.insertCheckpoint(earlier)
      assert.deepEqual(await store().sandboxes.listCheckpoints(sandbox.id, sandbox.orgId), [earlier, later])
      assert.deepEqual(await store().sandboxes.listCheckpoints(sandbox.id, newId('org_')), [])
      const ids = await store().sandboxes.checkpointIds()
      assert.ok(ids.includes(earlier.id) && ids.includes(later.id))
    })

    test('those whose name begins so are found in all sandboxes, oldest first; no character stands for others', async () => {
      const marker = newId('pa-')
      const [one, two] = [await newSandbox(), await newSandbox()]
      const later = checkpointOf(one, { name: `${marker} b`, createdAt: new Date('2026-01-02') })
      const earlier = checkpointOf(two, { name: `${marker} a`, createdAt: new Date('2026-01-01') })
      const other = checkpointOf(one, { name: `x${marker}` })
      for (const checkpoint of [later, earlier, other]) await store().sandboxes.insertCheckpoint(checkpoint)
      assert.deepEqual(await store().sandboxes.checkpointsNamed(marker), [earlier, later])
      assert.deepEqual(await store().sandboxes.checkpointsNamed(`${marker}_`), [])
      assert.deepEqual(await store().sandboxes.checkpointsNamed('%'), [])
    })

    test('checkpoints are found by state and updated', async () => {
      const sandbox = await newSandbox()
      const checkpoint = checkpointOf(sandbox, { status: 'processing' })
      await store().sandboxes.insertCheckpoint(checkpoint)
      const processing = await store().sandboxes.checkpointsIn('processing')
      assert.ok(processing.some(({ id }) => id === checkpoint.id))
      const failed = await store().sandboxes.updateCheckpoint(checkpoint.id, { status: 'failed', error: 'why' })
      assert.deepEqual(failed, { ...checkpoint, status: 'failed', error: 'why' })
      const ready = await store().sandboxes.updateCheckpoint(checkpoint.id, {
        status: 'ready',
        sizeBytes: 2 ** 33,
        error: undefined,
      })
      assert.deepEqual(ready, { ...checkpoint, status: 'ready', sizeBytes: 2 ** 33 })
      assert.deepEqual(await store().sandboxes.updateCheckpoint(checkpoint.id, {}), ready)
      assert.deepEqual(await store().sandboxes.checkpoint(checkpoint.id), ready)
      assert.equal(await store().sandboxes.updateCheckpoint(newId('cp-'), { status: 'ready' }), undefined)
    })

    test('deleting a checkpoint removes its patches and tells whether there was one', async () => {
      const { id } = await newCheckpoint()
      await store().sandboxes.insertPatch(patchOf(id))
      assert.equal(await store().sandboxes.deleteCheckpoint(id), true)
      assert.equal(await store().sandboxes.deleteCheckpoint(id), false)
      assert.equal(await store().sandboxes.checkpoint(id), undefined)
      assert.deepEqual(await store().sandboxes.listPatches(id), [])
    })

    test('a deleted checkpoint is remembered until it is forgotten', async () => {
      const [one, other] = [await newCheckpoint(), await newCheckpoint()]
      for (const { id } of [one, other]) await store().sandboxes.deleteCheckpoint(id)
      const deleted = async () => {
        const ids = await store().sandboxes.deletedCheckpointIds()
        return [ids.includes(one.id), ids.includes(other.id)]
      }
      assert.deepEqual(await deleted(), [true, true])
      await store().sandboxes.forgetCheckpoints([one.id])
      assert.deepEqual(await deleted(), [false, true])
    })
  })

  suite('patches', () => {
    test('a patch gets the next number and is read as it was written', async () => {
      const { id } = await newCheckpoint()
      const first = { ...patchOf(id, 'echo "€" && exit 0\n'), description: 'd', strategy: 'on_resume' as const }
      const second = patchOf(id)
      assert.deepEqual(await store().sandboxes.insertPatch(first), { ...first, sequence: 1 })
      await store().sandboxes.insertPatch(second)
      assert.deepEqual(await store().sandboxes.listPatches(id), [
        { ...first, sequence: 1 },
        { ...second, sequence: 2 },
      ])
    })

    test('the number of a deleted patch is never given again', async () => {
      const { id } = await newCheckpoint()
      await store().sandboxes.insertPatch(patchOf(id))
      const last = await store().sandboxes.insertPatch(patchOf(id))
      assert.equal(await store().sandboxes.deletePatch(id, last.id), true)
      assert.equal(await store().sandboxes.deletePatch(id, last.id), false)
      assert.equal((await store().sandboxes.insertPatch(patchOf(id))).sequence, 3)
    })

    test('patches made at the same time get numbers of their own', async () => {
      const { id } = await newCheckpoint()
      const patches = await Promise.all(Array.from({ length: 20 }, () => store().sandboxes.insertPatch(patchOf(id))))
      const sequences = patches.map(({ sequence }) => sequence).toSorted((a, b) => a - b)
      assert.deepEqual(
        sequences,
        Array.from({ length: 20 }, (_, index) => index + 1),
      )
    })

    test('a patch belongs to its checkpoint', async () => {
      const [one, other] = [await newCheckpoint(), await newCheckpoint()]
      const patch = await store().sandboxes.insertPatch(patchOf(one.id))
      assert.equal(await store().sandboxes.deletePatch(other.id, patch.id), false)
      assert.deepEqual(await store().sandboxes.listPatches(other.id), [])
      assert.deepEqual(await store().sandboxes.listPatches(one.id), [patch])
    })

    test('a patch of an unknown or deleted checkpoint is not found', async () => {
      const { id } = await newCheckpoint()
      await store().sandboxes.deleteCheckpoint(id)
      for (const checkpointId of [id, newId('cp-')]) {
        await assert.rejects(store().sandboxes.insertPatch(patchOf(checkpointId)), (error) =>
          isServiceError(error, 'not_found'),
        )
      }
    })

    test('a patch id that is taken is a conflict and uses up no number', async () => {
      const { id } = await newCheckpoint()
      const patch = patchOf(id)
      await store().sandboxes.insertPatch(patch)
      await assert.rejects(store().sandboxes.insertPatch(patch), (error) => isServiceError(error, 'conflict'))
      assert.equal((await store().sandboxes.insertPatch(patchOf(id))).sequence, 2)
    })
  })
}
