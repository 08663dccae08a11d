import assert from 'node:assert/strict'
import { readdir, writeFile } from 'node:fs/promises'
import { test, type TestContext } from 'node:test'
import { Semaphore } from '../../lib/async/semaphore.ts'
import { temporaryFolder } from '../testing/temporary-folder.ts'
import { readCheckpointRecord, readSandboxRecord, Records, type ReadRecord } from './records.ts'
import { checkpointRecord, sandboxRecord } from './testing/records.ts'

interface Word {
  id: string
  word: string
}

const readWord: ReadRecord<Word> = (text, id) => {
  const word = text.endsWith('}') ? (JSON.parse(text) as Word) : undefined
  return word?.id === id ? word : undefined
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
  assert.deepEqual((await again.load()).toSorted(), ['sb-4', 'sb-5'])
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

test('records: text that is no complete record of the id is unreadable', () => {
  const sandbox = sandboxRecord('sb-1', 1)
  assert.deepEqual(readSandboxRecord(JSON.stringify(sandbox), 'sb-1'), sandbox)
  const changes = [{ layers: undefined }, { slot: '1' }, { layers: [null] }]
  for (const value of [...changes.map((change) => ({ ...sandbox, ...change })), {}, null])
    assert.equal(readSandboxRecord(JSON.stringify(value), 'sb-1'), undefined)
  for (const text of ['', '\0\0\0', '{"id":"sb-1"']) assert.equal(readSandboxRecord(text, 'sb-1'), undefined)
  assert.equal(readSandboxRecord(JSON.stringify(sandbox), 'sb-2'), undefined)

  const checkpoint = checkpointRecord('cp-1')
  assert.deepEqual(readCheckpointRecord(JSON.stringify(checkpoint), 'cp-1'), checkpoint)
  assert.equal(readCheckpointRecord(JSON.stringify({ ...checkpoint, memory: {} }), 'cp-1'), undefined)
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
