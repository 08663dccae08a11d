import assert from 'node:assert/strict'
import { test } from 'node:test'
import { bootId } from '../process.ts'
import { restoredRecord } from './offline-restore.ts'

const record = { id: 'sb-1', base: 'base-1', guest: 'guest-1', layers: [], rangeStart: 1, slot: 1 }
const memory = { folder: 'memory/saved/sb-1.a', address: '10.0.0.2', keepConnections: true }
const restored = (given: object) => JSON.parse(restoredRecord(JSON.stringify(given))) as unknown

test('restored record: memory that is whole stays, as it is on the disk by then', () => {
  const whole = { ...record, memory: { ...memory, bytes: 7 } }
  assert.deepEqual(restored(whole), whole)
  assert.deepEqual(restored({ ...record, memory: { ...memory, bytes: 7, unflushed: bootId() } }), whole)
  assert.deepEqual(restored(record), record)
})

test('restored record: memory whose restore had begun is one of another boot, also on the same machine', () => {
  const { memory: found } = restored({ ...record, memory: { ...memory, bytes: 7, resuming: bootId() } }) as {
    memory: { resuming: string }
  }
  assert.notEqual(found.resuming, bootId())
})

test('restored record: memory of a dump under way is dropped', () => {
  assert.deepEqual(restored({ ...record, memory }), record)
})

test('restored record: what cannot be read stays as it is', () => {
  for (const text of ['', '{', 'null', '7', '{"memory":null}', '{"memory":7}']) assert.equal(restoredRecord(text), text)
})
