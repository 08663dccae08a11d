/** Imports of several organisations at a time: one that is held up leaves the others their place, and no layer. */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { readdir } from 'node:fs/promises'
import { kill } from 'node:process'
import { Readable } from 'node:stream'
import { describe, test } from 'node:test'
import { setImmediate as nextRound } from 'node:timers/promises'
import { Cgroups } from '../../src/runtime/cgroups/index.ts'
import { imageOf, ociArchiveOf, tarOf, type TestImage } from '../support/oci-image.ts'
import { useRunc } from './driver-runc-host.ts'
import { create, freshId, remove } from './driver-shell.ts'

describe('imports of several organisations on runc', () => {
  const runc = useRunc()
  const importing = (owner: string, image: TestImage, id = freshId('cp')) =>
    runc.driver.importImage!(id, { archive: Readable.from([ociArchiveOf(image)]) }, undefined, owner).then(() => id)

  /** Begins an import and stops the program that unpacks its first layer. Returns what lets it go on. */
  async function heldUp(owner: string, image: TestImage): Promise<{ imported: Promise<string>; goOn: () => void }> {
    const { poolDir, workGroupRoot } = runc.fixture.names
    const cgroups = await Cgroups.find()
    const imported = importing(owner, image)
    const over = new AbortController()
    imported.catch(() => undefined).finally(() => over.abort())
    const isUnpacking = async () => (await readdir(`${poolDir}/imports`)).some((name) => name.endsWith('.0'))
    while (!over.signal.aborted && !(await isUnpacking())) await nextRound()
    let members: number[] = []
    while (!over.signal.aborted && members.length === 0) {
      await nextRound()
      members = await cgroups.members(`${workGroupRoot}/import-0`)
    }
    // On a busy machine one may be over before anybody looks.
    if (over.signal.aborted) return await heldUp(owner, image)
    for (const pid of members) kill(pid, 'SIGSTOP')
    const goOn = () => {
      for (const pid of members) kill(pid, 'SIGCONT')
    }
    return { imported, goOn }
  }

  const slowLayer = () => tarOf([{ path: 'large', content: Buffer.alloc(48 * 2 ** 20, 'x') }])

  test('import: one that is held up holds its organisation back, and no other', async () => {
    const { imported, goOn } = await heldUp('org_slow', imageOf([slowLayer()]))
    let isOver = false
    const another = importing('org_slow', imageOf([tarOf([{ path: 'a', content: 'of the slow' }])]))
    void another.then(() => (isOver = true))
    const ofOther = await importing('org_other', imageOf([tarOf([{ path: 'a', content: 'of another' }])]))
    assert.equal(isOver, false)
    goOn()
    await remove(runc.driver, ofOther, await imported, await another)
  })

  test('import: who says that what takes long to unpack is the layer of others holds up none of these', async () => {
    const layer = tarOf([{ path: 'shared', content: 'by many images' }])
    const diffIds = [`sha256:${createHash('sha256').update(layer).digest('hex')}`]
    const { imported, goOn } = await heldUp('org_slow', imageOf([slowLayer()], { diffIds }))
    const ofOther = await importing('org_other', imageOf([layer]))
    goOn()
    await assert.rejects(imported, /another content than its digest/)
    const id = await create(runc.driver, { from: { checkpointId: ofOther } })
    await remove(runc.driver, id, ofOther)
  })

  test('import: organisations that unpack the same layers at a time share what comes of them', async () => {
    const layers = [slowLayer(), tarOf([{ path: 'above', content: 'it' }])]
    const { imported, goOn } = await heldUp('org_slow', imageOf(layers))
    const ofOther = await importing('org_other', imageOf(layers))
    const placed = await readdir(`${runc.fixture.names.poolDir}/layers`)
    goOn()
    const ofSlow = await imported
    assert.deepEqual(await readdir(`${runc.fixture.names.poolDir}/layers`), placed)
    const ids = [await create(runc.driver, { from: { checkpointId: ofOther } })]
    ids.push(await create(runc.driver, { from: { checkpointId: ofSlow } }))
    await remove(runc.driver, ...ids, ofOther, ofSlow)
    assert.deepEqual(await readdir(`${runc.fixture.names.poolDir}/layers`), [])
  })
})
