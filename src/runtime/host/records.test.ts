import assert from 'node:assert/strict'
import { readdir, writeFile } from 'node:fs/promises'
import { test, type TestContext } from 'node:test'
import { Semaphore } from '../../lib/async/semaphore.ts'
import { temporaryFolder } from '../testing/temporary-folder.ts'
import { readCheckpointRecord, readSandboxRecord, recordFormat, Records, textOf, type ReadRecord } from './records.ts'
import { checkpointRecord, sandboxRecord } from './testing/records.ts'

interface Word {
  id: string
  word: string
}

const readWord: ReadRecord<Word> = (text, id) => {
  if (!text.endsWith('}')) return { fault: 'it is damaged' }
  const { format: _, ...record } = JSON.parse(text) as Word & { format?: number }
  return record.id === id ? { record } : { fault: 'it is of another' }
}

async function makeRecords(t: TestContext) {
  const folder = await temporaryFolder(t)
  const records = new Records(folder, readWord)
  assert.deepEqual(await records.load(), [])
  return { folder, records, again: new Records(folder, readWord) }
}

test('records: survive a restart; load returns unreadable ids and removes nothing', async (t) => {
  const { folder, records, again } = await makeRecords(t)
  await records.put({ id: 'sb-1', word: 'one' })
  await records.put({ id: 'sb-2', word: 'two' })
  await records.put({ id: 'sb-1', word: 'changed' })
  await records.remove('sb-2')
  await records.remove('sb-2')
  const kept = ['notes.txt', 'sb-1.json', 'sb-4.json', 'sb-5.json']
  await writeFile(`${folder}/sb-3.json.new`, '{"id":"sb-3"')
  await writeFile(`${folder}/sb-4.json`, '{"id":"sb-4"')
  await writeFile(`${folder}/sb-5.json`, '{"id":"sb-1"}')
  await writeFile(`${folder}/notes.txt`, 'of an operator')
  assert.deepEqual(
    (await again.load()).toSorted((one, other) => one.id.localeCompare(other.id)),
    [
      { id: 'sb-4', fault: 'it is damaged' },
      { id: 'sb-5', fault: 'it is of another' },
    ],
  )
  assert.deepEqual(again.all(), [{ id: 'sb-1', word: 'changed' }])
  assert.deepEqual((await readdir(folder)).toSorted(), [...kept, 'sb-3.json.new'].toSorted())
  await again.removeTemporaryFiles()
  assert.deepEqual((await readdir(folder)).toSorted(), kept)
})

/** One that cannot be written, as when there is no room. */
function unwritable(word: string) {
  const toJSON = () => {
    throw new Error('no room')
  }
  return { id: 'sb-1', word, toJSON }
}

test('records: a failed write leaves the earlier record in force', async (t) => {
  const { records, again } = await makeRecords(t)
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
  await again.load()
  assert.deepEqual(again.all(), [{ id: 'sb-1', word: 'seven' }])
  await Promise.allSettled([records.remove('sb-1'), records.put(unwritable('nine'))])
  assert.deepEqual(records.all(), [])
})

test('update: changes the record written last, and brings no removed one back', async (t) => {
  const { records, again } = await makeRecords(t)
  const longer = (record: Word) => ({ ...record, word: `${record.word}, changed` })
  await records.update('sb-1', longer)
  assert.deepEqual(records.all(), [])
  await Promise.all([records.put({ id: 'sb-1', word: 'one' }), records.update('sb-1', longer)])
  assert.equal(records.get('sb-1')?.word, 'one, changed')
  await Promise.all([records.update('sb-1', longer), records.put({ id: 'sb-1', word: 'two' })])
  assert.equal(records.get('sb-1')?.word, 'two')
  await records.update('sb-1', () => undefined)
  await assert.rejects(
    records.update('sb-1', () => unwritable('three')),
    /no room/,
  )
  await again.load()
  assert.deepEqual([records.all(), again.all()], [[{ id: 'sb-1', word: 'two' }], [{ id: 'sb-1', word: 'two' }]])
  await Promise.all([records.remove('sb-1'), records.update('sb-1', longer)])
  await again.load()
  assert.deepEqual([records.all(), again.all()], [[], []])
})

test('records: text that is no complete record of the id and of this format is unreadable, with what it lacks', () => {
  const sandbox = sandboxRecord('sb-1', 1)
  assert.deepEqual(readSandboxRecord(textOf(sandbox), 'sb-1'), { record: sandbox })
  const faultOf = (text: string, id = 'sb-1') => {
    const found = readSandboxRecord(text, id)
    return 'fault' in found ? found.fault : undefined
  }
  for (const change of [{ layers: undefined }, { slot: '1' }, { layers: [null] }, { generation: undefined }]) {
    assert.equal(faultOf(textOf({ ...sandbox, ...change })), `it lacks a valid ${Object.keys(change).join()}`)
  }
  for (const text of ['', '\0\0\0', '{"id":"sb-1"', 'null', '1']) assert.equal(faultOf(text), 'it is damaged')
  assert.equal(faultOf(textOf(sandbox), 'sb-2'), 'it is that of "sb-1"')
  assert.match(faultOf(JSON.stringify(sandbox)) ?? '', /has no format: a version of Atoll before 0\.1\.0/)
  const later = faultOf(textOf({ ...sandbox, format: recordFormat + 1 })) ?? ''
  assert.match(later, new RegExp(`has format ${recordFormat + 1}, and this version reads format ${recordFormat}`))

  const checkpoint = checkpointRecord('cp-1')
  assert.deepEqual(readCheckpointRecord(textOf(checkpoint), 'cp-1'), { record: checkpoint })
  const withoutFolder = readCheckpointRecord(textOf({ ...checkpoint, memory: { guest: '/' } }), 'cp-1')
  assert.deepEqual(withoutFolder, { fault: 'it lacks a valid memory' })
})

test('records: writes and removals wait while a backup has all permits for changes', async (t) => {
  const folder = await temporaryFolder(t)
  const changes = new Semaphore({ permits: 2 })
  const records = new Records(folder, readWord, undefined, changes)
  await records.load()
  await records.put({ id: 'sb-1', word: 'one' })
  const release = await changes.acquire({ weight: 2 })
  const works = [records.put({ id: 'sb-2', word: 'two' }), records.remove('sb-1')]
  const holderAndWaiting = 1 + works.length
  for (let turns = 0; changes.users() < holderAndWaiting && turns < 1000; turns += 1) await new Promise(setImmediate)
  assert.equal(changes.users(), holderAndWaiting)
  assert.deepEqual(await readdir(folder), ['sb-1.json'])
  release()
  await Promise.all(works)
  assert.deepEqual(await readdir(folder), ['sb-2.json'])
})
