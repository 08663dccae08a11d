/** What the deletion of checkpoints would give back. */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { describe, test } from 'node:test'
import { promisify } from 'node:util'
import type { DiskTrees } from '../../src/sandbox/ports/disk-trees.ts'
import { useRunc } from './driver-runc-host.ts'
import { create, freshId, remove, specOf, succeed } from './driver-shell.ts'

const dataBytes = 16 * 1024 * 1024
/** Trees of the file system. */
const metadataBytesMax = 1024 * 1024
/** Of the guest alone. */
const memoryBytesMin = 100 * 1024

describe('unique bytes on runc', () => {
  const runc = useRunc()
  const trees = (): DiskTrees => runc.driver.trees ?? assert.fail('the driver reads no disks')
  const bytesOf = async (id: string) => (await trees().uniqueBytes([id])).get(id) ?? assert.fail(`${id} is unknown`)
  const write = (id: string) => succeed(runc.guest(id), `head -c ${dataBytes} /dev/urandom >/workspace/data && sync`)

  test('unique bytes: a disk counts what neither its sandbox nor another checkpoint has, and nothing while something is based on it', async () => {
    const [id, older, newer, fork] = [await create(runc.driver), freshId('cp'), freshId('cp'), freshId('sb')]
    await write(id)
    await runc.driver.checkpoint(id, older, 'disk_only')
    assert.ok((await bytesOf(older)) < metadataBytesMax, 'the sandbox has the same')
    await runc.driver.checkpoint(id, newer, 'disk_only')
    await write(id)
    const both = await trees().uniqueBytes([older, newer, 'cp-none'])
    assert.deepEqual([...both.keys()].toSorted(), [older, newer].toSorted())
    for (const bytes of both.values()) assert.ok(bytes < metadataBytesMax, 'each has what the other has')
    await runc.driver.deleteCheckpoint(newer)
    // The removal of a subvolume ends in the background.
    await promisify(execFile)('btrfs', ['subvolume', 'sync', runc.fixture.names.poolDir])
    const own = await bytesOf(older)
    assert.ok(own >= dataBytes && own < dataBytes + metadataBytesMax, String(own))
    await runc.driver.create(specOf(fork, { from: { checkpointId: older } }))
    assert.equal(await bytesOf(older), 0)
    await remove(runc.driver, fork)
    assert.equal(await bytesOf(older), own)
    await remove(runc.driver, id, older)
  })

  test('unique bytes: memory counts what no later memory shares', async () => {
    const [id, first, second] = [await create(runc.driver), freshId('cp'), freshId('cp')]
    await runc.driver.checkpoint(id, first, 'full')
    const alone = await bytesOf(first)
    // It has not reached the disk, or not all of it.
    assert.ok(alone > memoryBytesMin, String(alone))
    await runc.driver.checkpoint(id, second, 'full')
    const found = await trees().uniqueBytes([first, second])
    assert.deepEqual([...found.keys()], [first, second])
    assert.ok((found.get(second) ?? 0) > memoryBytesMin)
    await remove(runc.driver, id, first, second)
  })
})
