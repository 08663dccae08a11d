import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Message, Session, StreamEvent } from './session.ts'
import { memorySessionStore } from './testing/memory-session-store.ts'
import { loadTurn } from './state.ts'

test('a turn is read back whole, one page at a time, however large its events are', async () => {
  const store = memorySessionStore()
  const createdAt = new Date()
  const message: Message = { id: 'msg_2', role: 'user', content: '', state: 'started', createdAt }
  await store.createSession({ id: 'session_1', status: 'running' } as Session, [message], {
    id: 'evt_1',
    type: 'session_started',
    level: 'info',
    message: '',
    createdAt,
  })
  const said = (text: string): StreamEvent['data'] => ({
    type: 'assistant',
    message: { content: [{ type: 'text', text }] },
    session_id: 'agent',
  })
  const large = said('x'.repeat(700_000))
  const before = [said('of another turn'), large, large, large, { type: 'turn_complete', session_id: 'agent' }]
  const now = [large, large, large, large, said('the end'), { type: 'result', subtype: 'success', result: 'done' }]
  await store.commit('session_1', { addStream: [...before, ...now] })
  const turn = await loadTurn(store, 'session_1')
  assert.equal(turn?.messageId, 'msg_2')
  assert.equal(turn.output.lines, now.length)
  assert.equal(turn.output.bytes, Buffer.byteLength(now.map((data) => JSON.stringify(data)).join('')))
  assert.deepEqual(turn.result, { subtype: 'success', text: 'done' })
  assert.ok(!turn.text.includes('another'))
})
