/** What a context costs, and when it goes. */
import assert from 'node:assert/strict'
import { mkdir, readdir, rm, utimes, writeFile } from 'node:fs/promises'
import { test } from 'node:test'
import { buffer } from 'node:stream/consumers'
import { ServiceError } from '../../errors.ts'
import { tarEntry as entry, tarOf } from '../../../test/support/tar.ts'
import { contextFolders, digestOf, fails, file, filesIn, pieces, sha256 } from './testing/kit.ts'

const world = await contextFolders()
const { contextsOf } = world
const orgId = 'org_1'

test('contexts: one that is not used goes with the contents that no other has, and none while it is held', async () => {
  const contexts = contextsOf()
  const { signal } = new AbortController()
  const make = async (...names: string[]) => {
    const { id } = await contexts.create(
      orgId,
      names.map((name) => file(name, name)),
    )
    await contexts.upload(orgId, id, pieces(tarOf(...names.map((name) => entry(name, name)))))
    await utimes(`${world.dir}/${orgId}/indexes/${id}`, 1000, 1000)
    return id
  }
  const [old, held] = [await make('a', 'shared'), await make('b', 'shared')]
  const used = await make('c', 'a')
  const open = await contexts.open(orgId, held)
  ;(await contexts.open(orgId, used))[Symbol.dispose]()
  await utimes(`${world.dir}/${orgId}/indexes/${held}`, 1000, 1000)
  const before = new Date(Date.now() - 60_000)
  await contexts.removeUnused(before, signal)
  await assert.rejects(contexts.open(orgId, old), fails('not_found', /no context/))
  assert.equal((await filesIn(world.dir)).length, 2 + 4, 'a, b, c, shared')
  open[Symbol.dispose]()
  open[Symbol.dispose]()
  await contexts.removeUnused(before, signal)
  assert.deepEqual((await filesIn(world.dir)).toSorted(), [used, sha256('a'), sha256('c')].toSorted())
  using still = await contexts.open(orgId, used)
  assert.equal((await buffer(still.read('/a'))).toString(), 'a')
})

test('contexts: a start removes drafts and contents without a context, and keeps the rest', async () => {
  const { signal } = new AbortController()
  const before = contextsOf()
  const { id } = await before.create(orgId, [file('a', 'a'), file('b', 'b')])
  await before.upload(orgId, id, pieces(tarOf(entry('a', 'a'))))
  const other = await before.create('org_2', [file('a', 'a')])
  await before.upload('org_2', other.id, pieces(tarOf(entry('a', 'a'))))
  await rm(`${world.dir}/org_2/indexes/${other.id}`)
  // As a crash leaves them: a draft, and a content whose context is gone.
  await writeFile(`${world.dir}/${orgId}/drafts/half`, 'half')
  const stray = sha256('stray')
  await mkdir(`${world.dir}/${orgId}/files/${stray.slice(0, 2)}`, { recursive: true })
  await writeFile(`${world.dir}/${orgId}/files/${stray.slice(0, 2)}/${stray}`, 'stray')
  const contexts = contextsOf()
  await contexts.start()
  await contexts.removeUnused(new Date(0), signal)
  assert.deepEqual((await filesIn(world.dir)).toSorted(), [id, sha256('a')].toSorted())
  assert.deepEqual((await contexts.create(orgId, [file('a', 'a'), file('b', 'b')])).missing, [digestOf('b')])
})

test('contexts: an organisation has so many, and its oldest ones make room', async () => {
  const contexts = contextsOf({ contextsMax: 2 })
  const ids: string[] = []
  for (const name of ['a', 'b']) ids.push((await contexts.create(orgId, [file(name, name)])).id)
  await assert.rejects(contexts.create(orgId, [file('c', 'c')]), fails('quota_exceeded', /there are 2 contexts/))
  await contexts.upload(orgId, ids[0]!, pieces(tarOf(entry('a', 'a'))))
  const held = await contexts.open(orgId, ids[0]!)
  for (const id of ids)
    await utimes(`${world.dir}/${orgId}/indexes/${id}`, 1000 + ids.indexOf(id), 1000 + ids.indexOf(id))
  const third = await contexts.create(orgId, [file('c', 'c')])
  assert.deepEqual((await readdir(`${world.dir}/${orgId}/indexes`)).toSorted(), [ids[0]!, third.id].toSorted())
  assert.equal((await contexts.create('org_2', [file('a', 'a')])).missing.length, 1)
  held[Symbol.dispose]()
})

test('contexts: the bytes of an organisation are bounded, before they are sent and while they come', async () => {
  const megabyte = 1024 * 1024
  const contexts = contextsOf({ contextsBytesMax: megabyte })
  const large = (letter: string) => Buffer.alloc(600_000, letter)
  const one = await contexts.create(orgId, [file('a', large('a'))])
  const two = await contexts.create(orgId, [file('b', large('b'))])
  await contexts.upload(orgId, one.id, pieces(tarOf(entry('a', large('a'))), 65_536))
  const late = contexts.upload(orgId, two.id, pieces(tarOf(entry('b', large('b'))), 65_536))
  await assert.rejects(late, fails('quota_exceeded', /more than 1048576 bytes/))
  await assert.rejects(
    contexts.create(orgId, [file('b', large('b')), file('c', 'c')]),
    fails('quota_exceeded', /would have more/),
  )
  assert.equal((await readdir(`${world.dir}/${orgId}/indexes`)).length, 2, 'a refused context leaves nothing')
  await utimes(`${world.dir}/${orgId}/indexes/${one.id}`, 1000, 1000)
  const again = await contexts.create(orgId, [file('b', large('b'))])
  await contexts.upload(orgId, again.id, pieces(tarOf(entry('b', large('b'))), 65_536))
  assert.deepEqual((await filesIn(world.dir)).toSorted(), [again.id, sha256(large('b'))].toSorted())
  const many = Array.from({ length: 70 }, (_, index) => file(String(index), String(index)))
  await assert.rejects(contexts.create(orgId, many), fails('quota_exceeded', /./), 'small files count for their inodes')
})

test('contexts: nothing is taken while the disk takes no data', async () => {
  let isFull = false
  const contexts = contextsOf({}, () => {
    if (isFull) throw new ServiceError('no_capacity', 'the disk is full')
  })
  const { id } = await contexts.create(orgId, [file('a', 'a')])
  isFull = true
  await assert.rejects(contexts.create(orgId, [file('b', 'b')]), fails('no_capacity', /disk/))
  await assert.rejects(contexts.upload(orgId, id, pieces(tarOf(entry('a', 'a')))), fails('no_capacity', /disk/))
  isFull = false
  async function* fillsMeanwhile(): AsyncGenerator<Uint8Array> {
    yield tarOf(entry('a', 'a')).subarray(0, 512)
    isFull = true
    yield tarOf(entry('a', 'a')).subarray(512)
  }
  await assert.rejects(contexts.upload(orgId, id, fillsMeanwhile()), fails('no_capacity', /disk/))
})
