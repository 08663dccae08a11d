import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { newId } from '../../src/lib/id.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import type { Volume, VolumeSnapshot } from '../../src/sandbox/index.ts'
import type { Store } from '../../src/store/index.ts'
import { checkpointOf, newOrganisation, newSandbox, sandboxOf } from './kit.ts'

function volumeOf(orgId: string, fields: Partial<Volume> = {}): Volume {
  const id = newId('vol-')
  return { id, orgId, name: id, sizeMb: 64, createdAt: new Date('2026-01-15T10:35:00.003Z'), ...fields }
}

function snapshotOf({ id, orgId, sizeMb }: Volume, fields: Partial<VolumeSnapshot> = {}): VolumeSnapshot {
  const own = newId('vol-')
  const createdAt = new Date('2026-01-15T10:36:00.004Z')
  return { id: own, orgId, volumeId: id, name: own, sizeMb, createdAt, ...fields }
}

export function volumeTests(store: Store): void {
  const { sandboxes } = store
  const newVolume = async (fields: Partial<Volume> = {}) => {
    const volume = volumeOf(fields.orgId ?? (await newOrganisation(store)).id, fields)
    await sandboxes.insertVolume(volume)
    return volume
  }
  const mount = ({ id, name }: Volume, readOnly: boolean) => ({ id, name, path: '/data', readOnly })
  const sandboxWith = async (volume: Volume, readOnly: boolean) => {
    const sandbox = sandboxOf(volume.orgId, { volumes: [mount(volume, readOnly)] })
    await sandboxes.insertSandbox(sandbox)
    return sandbox
  }

  suite('volumes', () => {
    test('volume: it is read as it was written, by its organisation alone', async () => {
      const volume = await newVolume({ source: 'other@snapshot' })
      const { id, orgId, name } = volume
      assert.deepEqual(await sandboxes.volume(orgId, { id }), volume)
      assert.deepEqual(await sandboxes.volume(orgId, { name }), volume)
      const other = (await newOrganisation(store)).id
      assert.equal(await sandboxes.volume(other, { id }), undefined)
      assert.equal(await sandboxes.volume(other, { name }), undefined)
      assert.deepEqual(await sandboxes.listVolumes(other), [])
    })

    test('volume: names are unique in an organisation, and order the list', async () => {
      const b = await newVolume({ name: 'b' })
      const a = await newVolume({ name: 'a', orgId: b.orgId })
      await refuses(sandboxes.insertVolume(volumeOf(b.orgId, { name: 'a' })), 'conflict', /name/)
      await newVolume({ name: 'a' })
      assert.deepEqual(await sandboxes.listVolumes(b.orgId), [a, b])
    })

    test('disk use: it sums sandboxes that are not stopped, volumes, snapshots and checkpoints of one organisation', async () => {
      const { id: orgId } = await newOrganisation(store)
      assert.deepEqual(await sandboxes.diskUse(orgId), { promisedMb: 0, storedBytes: 0 })
      const [live, stopped] = [sandboxOf(orgId, { diskMb: 1000 }), sandboxOf(orgId, { diskMb: 5, status: 'stopped' })]
      for (const sandbox of [live, stopped]) await sandboxes.insertSandbox(sandbox)
      const volume = await newVolume({ orgId, sizeMb: 200 })
      await sandboxes.insertVolumeSnapshot(snapshotOf(volume, { sizeMb: 30 }))
      const sizeBytes = 2 ** 40
      for (const name of ['a', 'b']) await sandboxes.insertCheckpoint(checkpointOf(live, { name, sizeBytes }))
      await newVolume()
      assert.deepEqual(await sandboxes.diskUse(orgId), { promisedMb: 1230, storedBytes: 2 * sizeBytes })
      assert.deepEqual(await sandboxes.diskUse(orgId, live.id), { promisedMb: 230, storedBytes: 2 * sizeBytes })
    })

    test('volume: an id is remembered from its reservation to its record, and from its deletion on', async () => {
      const { id: orgId } = await newOrganisation(store)
      const volume = volumeOf(orgId)
      const isRemembered = async () => (await sandboxes.volumeRemains()).includes(volume.id)
      await sandboxes.reserveVolume(volume.id)
      await sandboxes.reserveVolume(volume.id)
      assert.equal(await isRemembered(), true)
      await sandboxes.insertVolume(volume)
      assert.equal(await isRemembered(), false)
      assert.ok((await sandboxes.volumeIds()).includes(volume.id))
      assert.equal(await sandboxes.deleteVolume(volume.id), true)
      assert.equal(await sandboxes.deleteVolume(volume.id), false)
      assert.equal(await isRemembered(), true)
      await sandboxes.forgetVolumes([volume.id])
      assert.equal(await isRemembered(), false)
    })

    test('snapshot: names are unique in a volume, and a volume with snapshots stays', async () => {
      const volume = await newVolume()
      const [later, earlier] = [snapshotOf(volume, { createdAt: new Date('2026-03-01') }), snapshotOf(volume)]
      for (const snapshot of [later, earlier]) await sandboxes.insertVolumeSnapshot(snapshot)
      assert.deepEqual(await sandboxes.listVolumeSnapshots(volume.id), [earlier, later])
      const again = snapshotOf(volume, { name: later.name })
      await refuses(sandboxes.insertVolumeSnapshot(again), 'conflict', /name/)
      await refuses(sandboxes.insertVolumeSnapshot(snapshotOf(volumeOf(volume.orgId))), 'conflict', /gone/)
      await refuses(sandboxes.deleteVolume(volume.id), 'conflict', /in use/)
      for (const { id } of [later, earlier]) assert.equal(await sandboxes.deleteVolume(id), true)
      assert.equal(await sandboxes.deleteVolume(volume.id), true)
    })

    test('attachment: the second writer is refused and leaves no sandbox, readers are not', async () => {
      const volume = await newVolume()
      const writer = await sandboxWith(volume, false)
      assert.deepEqual(await sandboxes.sandbox(writer.id), writer)
      const second = sandboxOf(volume.orgId, { volumes: [mount(volume, false)] })
      await refuses(sandboxes.insertSandbox(second), 'conflict', /writes this volume/)
      assert.equal(await sandboxes.sandbox(second.id), undefined)
      const readers = [await sandboxWith(volume, true), await sandboxWith(volume, true)]
      const holders = (await sandboxes.volumeAttachments(volume.id)).map(({ sandboxId }) => sandboxId)
      assert.deepEqual(holders, [writer, ...readers].map(({ id }) => id).toSorted())
      await refuses(sandboxes.deleteVolume(volume.id), 'conflict', /in use/)
    })

    test('attachment: it ends when a stopped sandbox lets go, or is purged, and not before', async () => {
      const volume = await newVolume()
      const [one, other] = [await sandboxWith(volume, false), await sandboxWith(volume, true)]
      await sandboxes.detachVolumes(one.id)
      assert.equal((await sandboxes.volumeAttachments(volume.id)).length, 2, 'it runs')
      const stopped = { status: 'stopped', stoppedAt: new Date() } as const
      for (const { id } of [one, other]) await sandboxes.updateSandbox(id, stopped)
      await refuses(sandboxes.insertSandbox(sandboxOf(volume.orgId, { volumes: [mount(volume, false)] })), 'conflict')
      const holding = await sandboxes.stoppedHolders()
      assert.ok(holding.includes(one.id) && holding.includes(other.id))
      await sandboxes.detachVolumes(one.id)
      assert.equal((await sandboxes.stoppedHolders()).includes(one.id), false)
      await sandboxes.purgeSandboxes([other.id])
      assert.deepEqual(await sandboxes.volumeAttachments(volume.id), [])
      assert.deepEqual((await sandboxes.sandbox(one.id))?.volumes, [mount(volume, false)], 'the record still says so')
    })

    test('attachment: a volume that is gone is refused', async () => {
      const volume = await newVolume()
      await sandboxes.deleteVolume(volume.id)
      const late = sandboxOf(volume.orgId, { volumes: [mount(volume, true)] })
      await refuses(sandboxes.insertSandbox(late), 'conflict', /gone/)
    })

    test('checkpoint: its volumes are kept, and get generations', async () => {
      const checkpoint = checkpointOf(await newSandbox(store), { volumes: [mount(await newVolume(), false)] })
      await sandboxes.insertCheckpoint(checkpoint)
      assert.deepEqual(await sandboxes.checkpoint(checkpoint.id), checkpoint)
      const volumes = checkpoint.volumes.map((volume) => ({ ...volume, generation: 12 }))
      assert.deepEqual((await sandboxes.updateCheckpoint(checkpoint.id, { volumes }))?.volumes, volumes)
    })
  })
}
