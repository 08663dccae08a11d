import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { ApiAnswer } from '../support/api-client.ts'
import { useWorld } from '../support/world.ts'

const world = useWorld()

/** An idle session, which can be forked. */
async function create(): Promise<string> {
  const { status, body, text } = await world.api.post('/v1/sessions', { prompt: 'build a page', user_id: 'ann' })
  assert.equal(status, 201, text)
  world.sessions.kept.get(body.id)!.session.activity = 'idle'
  return body.id
}

async function fork(id: string, body: object, key?: string): Promise<ApiAnswer> {
  const headers = key === undefined ? {} : { 'idempotency-key': key }
  return await world.api.post(`/v1/sessions/${id}/fork`, { user_id: 'ann', ...body }, { headers })
}

const place = { atEvent: 5, afterEvent: 3, exact: false, checkpointId: 'cp-1', messageId: 'msg_1' }

test('fork: one at a place is answered as a session that says where it begins', async () => {
  const id = await create()
  for (const [at, asked] of [
    [{ message_id: 'msg_1' }, { messageId: 'msg_1' }],
    [{ event_id: 5 }, { eventId: 5 }],
    [{ checkpoint_id: 'cp-1' }, { checkpointId: 'cp-1' }],
  ]) {
    const answer = await fork(id, { at, name: 'branch' })
    assert.equal(answer.status, 201, answer.text)
    assert.deepEqual(answer.body.fork, place)
    assert.notEqual(answer.body.id, id)
    assert.equal(answer.body.messages.length, 1)
    assert.deepEqual(world.sessions.asked['fork'], { userId: 'ann', name: 'branch', at: asked })
  }
})

test('fork: one of the present says nothing of a place', async () => {
  const answer = await fork(await create(), {})
  assert.equal(answer.status, 201, answer.text)
  assert.equal(answer.body.fork, undefined)
  assert.equal(answer.body.sessions, undefined)
})

test('fork: with a count or variants the answer is a list in order, in which a failure has its place', async () => {
  const id = await create()
  const one = await fork(id, { count: 1 })
  assert.deepEqual([one.status, one.body.sessions.length, one.body.sessions[0].fork], [201, 1, place])
  assert.deepEqual(world.sessions.asked['fork'], { userId: 'ann', count: 1 })
  const four = await fork(id, { at: { event_id: 5 }, count: 4 })
  assert.equal(four.status, 201, four.text)
  const types = four.body.sessions.map((item: { id?: string; error?: { type: string } }) => item.error?.type ?? 'made')
  assert.deepEqual(types, ['made', 'made', 'forbidden', 'made'])
  assert.deepEqual(four.body.sessions[2], {
    error: { type: 'forbidden', code: 'quota_exceeded', message: 'no more sessions' },
  })
})

test('fork: variants say the message and the configuration of each', async () => {
  const id = await create()
  const variants = [
    { message: 'Blue' },
    { model: 'demo', system_prompt: 'be brief', envs: { A: '1' } },
    { agent_config: { model: 'demo', max_tokens: 9, checkpoints: 'none' }, model: 'demo' },
    {},
  ]
  const answer = await fork(id, { variants, count: 4 })
  assert.equal(answer.status, 201, answer.text)
  assert.equal(answer.body.sessions.length, 4)
  assert.deepEqual(world.sessions.asked['fork'], {
    userId: 'ann',
    count: 4,
    variants: [
      { message: 'Blue', agentConfig: {} },
      { agentConfig: { model: 'demo', systemPrompt: 'be brief', envs: { A: '1' } } },
      { agentConfig: { model: 'demo', maxTokens: 9, checkpoints: 'none' } },
      { agentConfig: {} },
    ],
  })
})

test('fork: bad input names the field', async () => {
  const id = await create()
  const cases: [body: object, status: number, message: RegExp][] = [
    [{ user_id: undefined }, 400, /^user_id: /],
    [{ at: {} }, 400, /^at: must hold one of/],
    [{ at: { message_id: 'msg_1', event_id: 1 } }, 400, /^at: must hold one of/],
    [{ at: { event_id: 0 } }, 400, /^at\.event_id: /],
    [{ at: { event_id: 1.5 } }, 400, /^at\.event_id: /],
    [{ at: { event_id: '1' } }, 400, /^at\.event_id: /],
    [{ at: { turn: 1 } }, 400, /^at/],
    [{ at: 'msg_1' }, 400, /^at: /],
    [{ count: 0 }, 400, /^count: /],
    [{ count: 21 }, 400, /^count: /],
    [{ count: 1.5 }, 400, /^count: /],
    [{ variants: [] }, 400, /^variants: /],
    [{ variants: Array.from({ length: 21 }, () => ({})) }, 400, /^variants: /],
    [{ variants: [{}, { colour: 'blue' }] }, 400, /^variants\.1.*colour/],
    [{ variants: [{ message: '' }] }, 400, /^variants\.0\.message: /],
    [{ variants: [{ model: 5 }] }, 400, /^variants\.0\.model: /],
    [{ variants: [{ envs: { A: 1 } }] }, 400, /^variants\.0\.envs/],
    [{ variants: [{ agent_config: { cwd: '/a' } }] }, 400, /^variants\.0\.agent_config.*cwd/],
    [{ variants: [{ agent_config: { harness: 'pi' } }] }, 400, /^variants\.0\.agent_config.*harness/],
    [{ variants: [{ agent_config: { skills: {} } }] }, 400, /^variants\.0\.agent_config.*skills/],
    [{ variants: [{ agent_config: { model: 'a/b' }, model: 'demo' }] }, 400, /^variants\.0: must not give/],
    [{ variants: [{ agent_config: { envs: { A: '1' } }, envs: { A: '2' } }] }, 400, /^variants\.0: must not give/],
    [{ name: 'Not A Name' }, 400, /^name: /],
    [{ times: 3 }, 400, /times/],
    [{ user_id: 'bob', count: 1 }, 403, /owner/],
    [{ user_id: 'bob', at: { event_id: 1 } }, 403, /owner/],
  ]
  const before = world.sessions.kept.size
  for (const [body, status, message] of cases) {
    const answer = await fork(id, body)
    assert.equal(answer.status, status, `${JSON.stringify(body)}: ${answer.text}`)
    assert.match(answer.body.error.message, message)
  }
  assert.equal(world.sessions.kept.size, before)
  assert.equal((await fork('session_none', { count: 2 })).status, 404)
})

test('fork: an Idempotency-Key makes forks once, also when their answer is too large to be kept', async () => {
  const id = await create()
  for (const [size, body] of [
    [10, { at: { event_id: 5 }, count: 4 }],
    [30_000, { at: { event_id: 5 }, count: 4 }],
    [30_000, { count: 3 }],
    [100_000, { at: { event_id: 5 } }],
    [200_000, { at: { event_id: 5 }, variants: [{}, {}] }],
  ] as const) {
    world.sessions.kept.get(id)!.messages[0]!.content = 'é'.repeat(size)
    const key = `many ${size} ${JSON.stringify(body)}`.replaceAll(' ', '_')
    const first = await fork(id, body, key)
    assert.equal(first.status, 201, first.text)
    const made = world.sessions.kept.size
    const again = await fork(id, body, key)
    assert.deepEqual([again.status, again.headers['idempotent-replayed']], [201, 'true'])
    assert.deepEqual(again.body, first.body)
    assert.equal(world.sessions.kept.size, made)
    const other = await fork(id, { ...body, name: 'other' }, key)
    assert.equal(other.status, 409)
  }
})

test('fork: of a large answer that is given again a session that has gone is an error in its place', async () => {
  const id = await create()
  world.sessions.kept.get(id)!.messages[0]!.content = 'x'.repeat(50_000)
  const body = { at: { event_id: 5 }, count: 2 }
  const first = await fork(id, body, 'gone')
  world.sessions.kept.delete(first.body.sessions[0].id)
  const again = await fork(id, body, 'gone')
  assert.equal(again.status, 201, again.text)
  assert.equal(again.body.sessions[0].error.type, 'not_found')
  assert.deepEqual(again.body.sessions[1], first.body.sessions[1])
})
