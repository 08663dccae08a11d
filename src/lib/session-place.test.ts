import assert from 'node:assert/strict'
import { test } from 'node:test'
import { placeNamed } from './session-place.ts'

test('session place: a message, a checkpoint and an event are told apart, and all else is none', () => {
  assert.deepEqual(placeNamed('msg_0a'), { messageId: 'msg_0a' })
  assert.deepEqual(placeNamed('cp-0a'), { checkpointId: 'cp-0a' })
  assert.deepEqual(placeNamed('42'), { eventId: 42 })
  for (const text of ['', '0', '-1', '1.5', '1e3', 'sb-0a', 'msg_a/b', 'web/v1', ' 42', 'cp-\n', '12345678901'])
    assert.equal(placeNamed(text), undefined, JSON.stringify(text))
})
