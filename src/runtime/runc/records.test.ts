import assert from 'node:assert/strict'
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { test } from 'node:test'
import { Records } from './records.ts'

test('records survive a restart; drafts and files that are no records are removed and named', async () => {
  const folder = await mkdtemp(`${tmpdir()}/atoll-records-`)
  try {
    const records = new Records<{ id: string; word: string }>(folder)
    assert.deepEqual(await records.load(), [])
    await records.put({ id: 'sb-1', word: 'one' })
    await records.put({ id: 'sb-2', word: 'two' })
    await records.put({ id: 'sb-1', word: 'changed' })
    await records.remove('sb-2')
    await records.remove('sb-2')
    await writeFile(`${folder}/sb-3.json.new`, '{"id":"sb-3"')
    await writeFile(`${folder}/sb-4.json`, '{"id":"sb-4"')
    await writeFile(`${folder}/sb-5.json`, '{"id":"sb-1"}')

    const again = new Records<{ id: string; word: string }>(folder)
    assert.deepEqual((await again.load()).toSorted(), ['sb-3.json.new', 'sb-4.json', 'sb-5.json'])
    assert.deepEqual(again.all(), [{ id: 'sb-1', word: 'changed' }])
    assert.deepEqual(await readdir(folder), ['sb-1.json'])
  } finally {
    await rm(folder, { recursive: true })
  }
})

/** One that cannot be written, as when there is no room. */
function unwritable(word: string) {
  const toJSON = () => {
    throw new Error('no room')
  }
  return { id: 'sb-1', word, toJSON }
}

test('a record that cannot be written leaves what was written before in force', async (t) => {
  const folder = await mkdtemp(`${tmpdir()}/atoll-records-`)
  t.after(() => rm(folder, { recursive: true }))
  const records = new Records<{ id: string; word: string }>(folder)
  await records.load()
  const noRoom = /no room/
  await assert.rejects(records.put(unwritable('never')), noRoom)
  assert.deepEqual(records.all(), [])
  await records.put({ id: 'sb-1', word: 'one' })
  const failing = records.put(unwritable('two'))
  assert.equal(records.get('sb-1')?.word, 'two', 'it takes effect at once')
  await assert.rejects(failing, noRoom)
  assert.equal(records.get('sb-1')?.word, 'one')

  const both = [records.put(unwritable('three')), records.put(unwritable('four'))]
  for (const put of both) await assert.rejects(put, noRoom)
  assert.equal(records.get('sb-1')?.word, 'one')
  await Promise.allSettled([records.put(unwritable('five')), records.put({ id: 'sb-1', word: 'six' })])
  assert.equal(records.get('sb-1')?.word, 'six')
  await Promise.allSettled([records.put({ id: 'sb-1', word: 'seven' }), records.put(unwritable('eight'))])
  assert.equal(records.get('sb-1')?.word, 'seven')
  const again = new Records<{ id: string; word: string }>(folder)
  await again.load()
  assert.deepEqual(again.all(), [{ id: 'sb-1', word: 'seven' }])
  await Promise.allSettled([records.remove('sb-1'), records.put(unwritable('nine'))])
  assert.deepEqual(records.all(), [])
})
