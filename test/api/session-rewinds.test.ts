import assert from 'node:assert/strict'
import { test } from 'node:test'
import { useWorld } from '../support/world.ts'

const world = useWorld()

async function create(): Promise<string> {
  const { status, body, text } = await world.api.post('/v1/sessions', { prompt: 'build a page', user_id: 'ann' })
  assert.equal(status, 201, text)
  return body.id
}

test('rewind: the answer has the session, what was left and what undoes it', async () => {
  const id = await create()
  const answer = await world.api.post(`/v1/sessions/${id}/rewind`, { user_id: 'ann', to: { message_id: 'msg_1' } })
  assert.equal(answer.status, 200, answer.text)
  const { session, ...rest } = answer.body
  assert.equal(session.id, id)
  assert.deepEqual(rest, { restoredPrompt: 'again', undoCheckpointId: 'cp-undo', processes: 'restored' })
  const request = { userId: 'ann', to: { messageId: 'msg_1' }, what: 'all' }
  assert.deepEqual(world.sessions.asked['rewind'], request)
})

test('rewind: a preview changes nothing and tells what would change', async () => {
  const id = await create()
  delete world.sessions.asked['rewind']
  const body = { user_id: 'ann', to: { event_id: 3 }, what: 'machine' }
  const answer = await world.api.post(`/v1/sessions/${id}/rewind?preview=true`, body)
  assert.equal(answer.status, 200, answer.text)
  assert.deepEqual(answer.body, {
    checkpointId: 'cp-1',
    toEvent: 3,
    turnsLeft: ['msg_2'],
    tokensLeft: 7,
    queuedMessages: 1,
    interrupts: false,
    processes: 'restored',
    processesEnded: ['node server.js'],
    files: null,
    restoredPrompt: null,
  })
  assert.deepEqual(world.sessions.asked['preview'], { userId: 'ann', to: { eventId: 3 }, what: 'machine' })
  assert.equal(world.sessions.asked['rewind'], undefined)
})

test('rewind: bad input names the field', async () => {
  const id = await create()
  const cases: [body: object, status: number, message: RegExp][] = [
    [{ to: { event_id: 1 } }, 400, /^user_id: /],
    [{ user_id: 'ann' }, 400, /^to: /],
    [{ user_id: 'ann', to: {} }, 400, /^to: must hold one of/],
    [{ user_id: 'ann', to: { event_id: 1, message_id: 'msg_1' } }, 400, /^to: must hold one of/],
    [{ user_id: 'ann', to: { event_id: 0 } }, 400, /^to\.event_id: /],
    [{ user_id: 'ann', to: { event_id: 1.5 } }, 400, /^to\.event_id: /],
    [{ user_id: 'ann', to: { turn: 1 } }, 400, /^to/],
    [{ user_id: 'ann', to: { event_id: 1 }, what: 'files' }, 400, /^what: /],
    [{ user_id: 'bob', to: { event_id: 1 } }, 403, /owner/],
  ]
  for (const [body, status, message] of cases) {
    const answer = await world.api.post(`/v1/sessions/${id}/rewind`, body)
    assert.equal(answer.status, status, `${JSON.stringify(body)}: ${answer.text}`)
    assert.match(answer.body.error.message, message)
  }
  const unknown = await world.api.post('/v1/sessions/session_none/rewind', { user_id: 'ann', to: { event_id: 1 } })
  assert.equal(unknown.status, 404)
})

test('adopt: the answer is that of a rewind', async () => {
  const id = await create()
  const answer = await world.api.post(`/v1/sessions/${id}/adopt`, { user_id: 'ann', from: 'session_fork' })
  assert.equal(answer.status, 200, answer.text)
  assert.equal(answer.body.session.id, id)
  assert.equal(answer.body.undoCheckpointId, 'cp-undo')
  assert.deepEqual(world.sessions.asked['adopt'], { userId: 'ann', from: 'session_fork' })
  const missing = await world.api.post(`/v1/sessions/${id}/adopt`, { user_id: 'ann' })
  assert.match(missing.body.error.message, /^from: /)
})

test('session: its limits are changed, and what cannot change is refused', async () => {
  const id = await create()
  const change = { max_tokens: 9, checkpoints: 'disk', secret_envs: ['A'], capsule_on_error: true }
  const answer = await world.api.send('PATCH', `/v1/sessions/${id}`, { body: { user_id: 'ann', agent_config: change } })
  assert.equal(answer.status, 200, answer.text)
  assert.equal(answer.body.id, id)
  assert.deepEqual(world.sessions.asked['change'], {
    maxTokens: 9,
    checkpoints: 'disk',
    secretEnvs: ['A'],
    capsuleOnError: true,
  })
  const refused = await world.api.send('PATCH', `/v1/sessions/${id}`, {
    body: { user_id: 'ann', agent_config: { model: 'x' } },
  })
  assert.equal(refused.status, 400)
  const other = await world.api.send('PATCH', `/v1/sessions/${id}`, {
    body: { user_id: 'bob', agent_config: { max_tokens: 9 } },
  })
  assert.equal(other.status, 403)
})
