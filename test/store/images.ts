import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { imagesOf, type Image, type ImageSelection } from '../../src/image/index.ts'
import { newId } from '../../src/lib/id.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import type { Store } from '../../src/store/index.ts'
import { idsOf, imageOf, newOrganisation } from './kit.ts'

export function imageTests(store: Store): void {
  const { images } = store

  async function insert(orgId: string, fields: Partial<Image> = {}): Promise<Image> {
    const image = imageOf(orgId, { status: 'ready', ...fields })
    await images.insertImage(image)
    return image
  }
  const listed = (which: ImageSelection) => Array.fromAsync(imagesOf(images, which))
  const organisation = async () => (await newOrganisation(store)).id

  suite('images', () => {
    test('image: it is read as it was written, by id and by name', async () => {
      const orgId = await organisation()
      const failure = { message: 'why', step: 2, type: 'run', exitCode: 1, stderr: 'a\n' }
      const manifest = { base: 'python', steps: [{ type: 'run' as const, args: { commands: ['é "quoted"'] } }] }
      const full = await insert(orgId, {
        name: 'n',
        checkpointId: newId('cp-'),
        layerHashes: ['a', 'b'],
        manifest,
        failure,
      })
      const bare = await insert(orgId, { status: 'building', isDetached: true })
      assert.deepEqual(await images.image(full.id), full)
      assert.deepEqual(await images.image(bare.id, orgId), bare)
      assert.deepEqual(await images.imageNamed('n', orgId), full)
      assert.equal(await images.image(full.id, await organisation()), undefined)
      assert.equal(await images.imageNamed('n', await organisation()), undefined)
      assert.deepEqual(idsOf((await images.imagesIn('building')).filter((it) => it.orgId === orgId)), [bare.id])
    })

    test('image: a name is unique in an organisation, no name is not', async () => {
      const orgId = await organisation()
      await insert(orgId, { name: 'taken' })
      await refuses(insert(orgId, { name: 'taken' }), 'conflict', /name/)
      await insert(await organisation(), { name: 'taken' })
      await insert(orgId)
      await insert(orgId)
    })

    test('image: those of a content come newest first, and the list too', async () => {
      const orgId = await organisation()
      const contentHash = newId('pa-')
      const older = await insert(orgId, { contentHash, createdAt: new Date('2026-01-01') })
      const newer = await insert(orgId, { contentHash, createdAt: new Date('2026-01-02') })
      const other = await insert(orgId, { createdAt: new Date('2026-01-03') })
      await insert(await organisation(), { contentHash })
      assert.deepEqual(idsOf(await images.imagesOf(contentHash, orgId)), idsOf([newer, older]))
      assert.deepEqual(idsOf(await listed({ orgId })), idsOf([other, newer, older]))
    })

    test('image: a list is read in pages of some bytes, whole, in one order', async () => {
      const orgId = await organisation()
      const steps = [{ type: 'run' as const, args: { commands: ['x'.repeat(400_000)] } }]
      const made: Image[] = []
      for (let index = 0; index < 8; index += 1) {
        const createdAt = new Date(2026, 1, 1 + Math.floor(index / 3))
        const large = index % 2 === 0 ? { manifest: { base: 'base', steps } } : { name: `n${index}` }
        made.push(await insert(orgId, { createdAt, ...large }))
      }
      const first = await images.imagePage({ orgId })
      assert.ok(first.length > 1 && first.length < made.length, String(first.length))
      const byAge = made.toSorted(
        (one, other) => other.createdAt.getTime() - one.createdAt.getTime() || (one.id < other.id ? -1 : 1),
      )
      assert.deepEqual(await listed({ orgId }), byAge)
      const named = byAge.filter(({ name }) => name !== undefined)
      assert.deepEqual(await listed({ orgId, isNamed: true }), named)
      assert.equal(await images.countNamed(orgId), named.length)
    })

    test('image: one that was imported is found by its first layer', async () => {
      const orgId = await organisation()
      const oci = { digest: 'sha256:1', entrypoint: [], cmd: [] }
      const imported = await insert(orgId, { layerHashes: ['first', 'second'], oci })
      await insert(orgId, { layerHashes: ['first'] })
      assert.deepEqual(await images.importedImage(orgId, 'first'), imported)
      assert.equal(await images.importedImage(orgId, 'second'), undefined)
      assert.equal(await images.importedImage(await organisation(), 'first'), undefined)
    })

    test('image: an update changes what it names and nothing of a deleted one', async () => {
      const image = await insert(await organisation(), { status: 'building' })
      const lastUsedAt = new Date('2026-05-05')
      const changed = { status: 'failed' as const, failure: { message: 'no' }, lastUsedAt }
      assert.deepEqual(await images.updateImage(image.id, changed), { ...image, ...changed })
      assert.equal(await images.deleteImage(image.id), true)
      assert.equal(await images.deleteImage(image.id), false)
      assert.equal(await images.updateImage(image.id, { isPublic: true }), undefined)
    })

    test('image: public ones are found by name whoever asks', async () => {
      const name = newId('pa-')
      const image = await insert(await organisation(), { name })
      assert.equal(await images.publicImageNamed(name), undefined)
      await images.updateImage(image.id, { isPublic: true })
      assert.equal((await images.publicImageNamed(name))?.id, image.id)
      assert.ok(idsOf(await listed({})).includes(image.id))
      await images.deleteImage(image.id)
    })

    test('image: unused are those without a name that nobody builds', async () => {
      const orgId = await organisation()
      const old = { lastUsedAt: new Date('2020-01-01') }
      const unused = await insert(orgId, old)
      const failed = await insert(orgId, { ...old, status: 'failed' })
      await insert(orgId, { ...old, name: 'kept' })
      await insert(orgId, { ...old, status: 'building' })
      await insert(orgId)
      const found = (await images.unusedImages(new Date('2021-01-01'))).filter((it) => it.orgId === orgId)
      assert.deepEqual(idsOf(found).toSorted(), idsOf([unused, failed]).toSorted())
    })

    test('image layer: it is replaced, found among hashes, and unused once no image of its organisation has it', async () => {
      const [orgId, strangerId] = [await organisation(), await organisation()]
      const layer = (owner: string, hash: string) => ({ orgId: owner, hash, checkpointId: newId('cp-') })
      const [first, second, other] = [layer(orgId, 'h1'), layer(orgId, 'h2'), layer(strangerId, 'h1')]
      for (const one of [layer(orgId, 'h1'), first, second, other]) await images.putLayer(one)
      assert.deepEqual(await images.layers(orgId, ['h1', 'h9']), [first])
      const image = await insert(orgId, { layerHashes: ['h1'], checkpointId: newId('cp-') })
      const used = await images.imageCheckpointIds()
      for (const id of [first.checkpointId, other.checkpointId, image.checkpointId!]) assert.ok(used.includes(id))
      assert.deepEqual(await images.deleteUnusedLayers(orgId), [second])
      assert.deepEqual(await images.layers(strangerId, ['h1']), [other])
      const unused = await images.deleteUnusedLayers()
      assert.deepEqual(
        unused.filter((it) => it.orgId === strangerId),
        [other],
      )
      assert.deepEqual(await images.layers(orgId, ['h1']), [first])
      await images.deleteLayer(orgId, 'h1')
      assert.deepEqual(await images.layers(orgId, ['h1']), [])
    })
  })
}
