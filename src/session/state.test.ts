import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Message, StreamEvent } from './session.ts'
import { loadTurn } from './state.ts'
import { emptySessionStore, insertSession } from './testing/store.ts'

test('a turn is read back whole, one page at a time, however large its events are', async () => {
  const store = emptySessionStore()
  const createdAt = new Date()
  const message: Message = { id: 'msg_2', role: 'user', content: '', state: 'started', createdAt }
  const { id } = await insertSession(store, {}, [message])
  const said = (text: string): StreamEvent['data'] => ({
    type: 'assistant',
    message: { content: [{ type: 'text', text }] },
    session_id: 'agent',
  })
  const large = said('x'.repeat(700_000))
  const before = [said('of another turn'), large, large, large, { type: 'turn_complete', session_id: 'agent' }]
  const now = [large, large, large, large, said('the end'), { type: 'result', subtype: 'success', result: 'done' }]
  await store.commit(id, { addStream: [...before, ...now] })
  const turn = await loadTurn(store, id)
  assert.equal(turn?.messageId, 'msg_2')
  assert.equal(turn.output.lines, now.length)
  assert.equal(turn.output.bytes, Buffer.byteLength(now.map((data) => JSON.stringify(data)).join('')))
  assert.deepEqual(turn.result, { subtype: 'success', text: 'done' })
  assert.ok(!turn.text.includes('another'))
})
