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
