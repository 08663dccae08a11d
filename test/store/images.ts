import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { imagesOf, type Image, type ImageSelection } from '../../src/image/index.ts'
import { newId } from '../../src/lib/id.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import type { Store } from '../../src/store/index.ts'
import { checkpointOf, idsOf, imageOf, newOrganisation, sandboxOf } from './kit.ts'

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

    test('image: one that is ready takes the name that it replaces, and whether that is public', async () => {
      const orgId = await organisation()
      const old = await insert(orgId, { name: 'tools', isPublic: true })
      const stranger = await insert(await organisation(), { name: 'tools' })
      const next = await insert(orgId, { status: 'building', replaces: 'tools' })
      assert.deepEqual(await images.replacementsOf('tools', orgId), [next])
      assert.equal((await images.imageNamed('tools', orgId))?.id, old.id)
      const ready = await images.updateImage(next.id, { status: 'ready', checkpointId: 'cp-1' })
      const { replaces: _taken, ...rest } = next
      assert.deepEqual(ready, { ...rest, name: 'tools', status: 'ready', checkpointId: 'cp-1', isPublic: true })
      const { name: _lost, ...unnamed } = old
      assert.deepEqual(await images.image(old.id), { ...unnamed, isPublic: false })
      assert.deepEqual(await images.imageNamed('tools', stranger.orgId), stranger)
      const third = await images.insertImage(imageOf(orgId, { status: 'ready', replaces: 'tools' }))
      assert.deepEqual([third.name, third.replaces, third.isPublic], ['tools', undefined, true])
      assert.equal((await images.image(next.id))?.name, undefined)
      for (const { id } of [old, next, third, stranger]) await images.deleteImage(id)
    })

    test('image: one that fails takes nothing, and a free name is taken too', async () => {
      const orgId = await organisation()
      const old = await insert(orgId, { name: 'tools' })
      const next = await insert(orgId, { status: 'building', replaces: 'tools' })
      const failed = await images.updateImage(next.id, { status: 'failed', failure: { message: 'no' } })
      assert.deepEqual([failed?.name, failed?.replaces], [undefined, 'tools'])
      assert.deepEqual(await images.imageNamed('tools', orgId), old)
      const other = await insert(orgId, { status: 'building', replaces: 'tools' })
      await images.deleteImage(old.id)
      assert.equal((await images.updateImage(other.id, { status: 'ready' }))?.name, 'tools')
    })

    test('image: one that is still being built takes its name back at its end', async () => {
      const orgId = await organisation()
      const first = await insert(orgId, { name: 'tools', status: 'building' })
      const second = await insert(orgId, { status: 'building', replaces: 'tools' })
      await images.updateImage(second.id, { status: 'ready' })
      assert.deepEqual((await images.imageNamed('tools', orgId))?.id, second.id)
      await images.updateImage(first.id, { status: 'ready' })
      assert.deepEqual((await images.imageNamed('tools', orgId))?.id, first.id)
    })

    test('image: of many that take one name at once, each succeeds and one has it', async () => {
      const orgId = await organisation()
      await insert(orgId, { name: 'tools' })
      const drafts = await Promise.all(
        Array.from({ length: 8 }, () => insert(orgId, { status: 'building', replaces: 'tools' })),
      )
      const ended = await Promise.all(drafts.map(({ id }) => images.updateImage(id, { status: 'ready' })))
      assert.deepEqual(
        ended.map((image) => image?.name),
        drafts.map(() => 'tools'),
      )
      assert.equal(await images.countNamed(orgId), 1)
    })

    test('image: its size is that of its checkpoint', async () => {
      const orgId = await organisation()
      const checkpoint = checkpointOf(sandboxOf(orgId), { sizeBytes: 2 ** 33 })
      await store.sandboxes.insertCheckpoint(checkpoint)
      const image = await insert(orgId, { checkpointId: checkpoint.id })
      assert.equal((await images.image(image.id))?.sizeBytes, 2 ** 33)
      assert.equal((await listed({ orgId }))[0]?.sizeBytes, 2 ** 33)
      assert.equal((await images.updateImage(image.id, { lastUsedAt: new Date() }))?.sizeBytes, 2 ** 33)
    })

    test('image: its facts for clients are read as they were written', async () => {
      const orgId = await organisation()
      const config = { cmd: ['sh', '-c', 'x'], labels: { a: 'b' }, healthcheck: { test: ['NONE'] } }
      const image = await insert(orgId, { config })
      assert.deepEqual((await images.image(image.id))?.config, config)
      assert.deepEqual((await images.updateImage(image.id, { config: { cmd: [] } }))?.config, { cmd: [] })
      assert.deepEqual((await images.updateImage(image.id, { isPublic: false }))?.config, { cmd: [] })
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

    test('registry credentials: one for each organisation and host, replaced, listed by host and deleted', async () => {
      const { registryCredentials: rows } = store
      const [orgId, other] = [await organisation(), await organisation()]
      const of = (host: string, fields = {}) => ({
        ...{ orgId, host, username: 'u', sealedPassword: 'v1.x', updatedAt: new Date('2026-01-01') },
        ...fields,
      })
      const replaced = of('quay.io', { username: 'v', sealedPassword: 'v1.y', updatedAt: new Date('2026-01-02') })
      for (const one of [of('quay.io'), replaced, of('ghcr.io'), of('quay.io', { orgId: other })])
        await rows.putCredential(one)
      assert.deepEqual(await rows.listCredentials(orgId), [of('ghcr.io'), replaced])
      assert.deepEqual(await rows.credential(orgId, 'quay.io'), replaced)
      assert.equal(await rows.deleteCredential(orgId, 'quay.io'), true)
      assert.equal(await rows.deleteCredential(orgId, 'quay.io'), false)
      assert.deepEqual(await rows.credential(other, 'quay.io'), of('quay.io', { orgId: other }))
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
