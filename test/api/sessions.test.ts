import assert from 'node:assert/strict'
import { connect } from 'node:net'
import { test } from 'node:test'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { useWorld } from '../support/world.ts'

const world = useWorld()

async function create(): Promise<string> {
  const { status, body, text } = await world.api.post('/v1/sessions', { prompt: 'build a page', user_id: 'ann' })
  assert.equal(status, 201, text)
  return body.id
}

test('session: a session is created with ids, preview URL, prompt and first event in the answer', async () => {
  const answer = await world.api.post('/v1/sessions', {
    prompt: 'build a page',
    user_id: 'ann',
    user_email: 'ann@example.com',
    agent_config: {
      system_prompt: 'be brief',
      skills: { 'a/SKILL.md': 'text' },
      max_turns: 3,
      checkpoints: 'disk',
      secret_envs: ['TOKEN'],
      capsule_on_error: true,
    },
  })
  assert.equal(answer.status, 201)
  const { body } = answer
  assert.match(body.id, /^session_/)
  assert.match(body.previewUrl, new RegExp(`^http://${body.sandboxId}-p3000\\.`))
  assert.deepEqual([body.status, body.userId, body.userEmail], ['running', 'ann', 'ann@example.com'])
  assert.deepEqual(body.project, { title: 'build a page', framework: '', artifacts: [] })
  assert.deepEqual([body.messages[0].role, body.messages[0].content], ['user', 'build a page'])
  assert.deepEqual([body.events[0].type, body.events[0].level], ['session_started', 'info'])
  assert.match(body.createdAt, /\.\d{3}Z$/)
  assert.deepEqual(world.sessions.lastCreate?.agentConfig, {
    systemPrompt: 'be brief',
    skills: { 'a/SKILL.md': 'text' },
    maxTurns: 3,
    checkpoints: 'disk',
    secretEnvs: ['TOKEN'],
    capsuleOnError: true,
  })
})

test('session: bad input names the field, and what is not built answers 501', async () => {
  type Case = [body: object, status: number, pattern: RegExp]
  const bad = (body: object, pattern: RegExp): Case => [{ prompt: 'x', user_id: 'u', ...body }, 400, pattern]
  const cases: Case[] = [
    [{ user_id: 'ann' }, 400, /^prompt: /],
    [{ prompt: '', user_id: 'ann' }, 400, /^prompt: /],
    [{ prompt: 5, user_id: 'ann' }, 400, /^prompt: /],
    [{ prompt: 'x' }, 400, /^user_id: /],
    [{ prompt: 'x', user_id: '' }, 400, /^user_id: /],
    [{ prompt: 'x', user_id: 7 }, 400, /^user_id: /],
    [{ prompt: 'x', user_id: 'u', agent_config: 'y' }, 400, /^agent_config: /],
    [{ prompt: 'x', user_id: 'u', agent_config: { skills: { a: 1 } } }, 400, /^agent_config\.skills\.a: /],
    ...[' ', 'a\0b', 'x'.repeat(257)].map((user_id) => bad({ user_id }, /^user_id: /)),
    ...[' ', 'a\0b', 'x'.repeat(1001)].flatMap((text) => [
      bad({ user_email: text }, /^user_email: /),
      bad({ user_name: text }, /^user_name: /),
    ]),
    ...[0, 1.5, 10_001].map((max_turns) => bad({ agent_config: { max_turns } }, /^agent_config\.max_turns: /)),
    ...[0, 1e300].map((max_tokens) => bad({ agent_config: { max_tokens } }, /^agent_config\.max_tokens: /)),
    ...[0, -1].map((max_cost_usd) => bad({ agent_config: { max_cost_usd } }, /^agent_config\.max_cost_usd: /)),
    bad({ agent_config: { checkpoints: 'all' } }, /^agent_config\.checkpoints: /),
    bad({ agent_config: { capsule_on_error: 1 } }, /^agent_config\.capsule_on_error: /),
    bad({ agent_config: { secret_envs: Array.from({ length: 101 }, () => 'x') } }, /^agent_config\.secret_envs: /),
    ...[[''], ['x'.repeat(201)], Array.from({ length: 101 }, () => 'x')].map((allowed_tools) =>
      bad({ agent_config: { allowed_tools } }, /^agent_config\.allowed_tools: /),
    ),
  ]
  for (const [body, status, pattern] of cases) {
    const answer = await world.api.post('/v1/sessions', body)
    assert.equal(answer.status, status, JSON.stringify(body))
    assert.match(answer.body.error.message, pattern)
  }
})

test('session: a session is read and listed by its owner, and is nothing to others', async () => {
  const { api, stranger } = world
  const id = await create()
  assert.equal((await api.get(`/v1/sessions/${id}`)).body.id, id)
  assert.equal((await api.get(`/v1/sessions/${id}?user_id=ann`)).body.id, id)
  for (const answer of [
    await api.get(`/v1/sessions/${id}?user_id=bob`),
    await api.delete(`/v1/sessions/${id}?user_id=bob`),
    await api.get('/v1/sessions/session_unknown00000'),
    await stranger.get(`/v1/sessions/${id}`),
    await stranger.delete(`/v1/sessions/${id}`),
    await stranger.post(`/v1/sessions/${id}/messages`, { message: 'x', user_id: 'ann' }),
    await stranger.get(`/v1/sessions/${id}/events`),
    await api.get(`/v1/sessions/${id}/events?user_id=bob`),
  ]) {
    assert.deepEqual([answer.status, answer.body.error.type, answer.body.error.code], [404, 'not_found', 'not_found'])
  }
  const listed = await api.get('/v1/sessions?user_id=ann&limit=1')
  assert.deepEqual([listed.body.data.length, listed.body.nextCursor], [1, 'more'])
  assert.deepEqual((await stranger.get('/v1/sessions')).body, { data: [], nextCursor: null })
  assert.equal((await api.get('/v1/sessions?limit=0')).status, 400)
  const other = await api.post('/v1/sessions', { prompt: 'About manatees', user_id: 'ann' })
  const found = await api.get('/v1/sessions?user_id=ann&search=manatees')
  assert.deepEqual(
    found.body.data.map((session: { id: string }) => session.id),
    [other.body.id],
  )
  assert.equal((await api.get(`/v1/sessions?search=${'x'.repeat(201)}`)).status, 400)
})

test('session: it tells why it is paused or archived, what it was forked from, and which messages a rewind has left', async () => {
  const { api, sessions } = world
  const id = await create()
  const plain = (await api.get(`/v1/sessions/${id}`)).body
  for (const field of ['reason', 'archivedReason', 'forkedFrom']) assert.equal(field in plain, false, field)
  assert.equal('left' in plain.messages[0], false)
  const kept = sessions.kept.get(id)!
  const why = { pausedFor: 'budget', archivedFor: 'another won', forkedFrom: 'session_source000000' } as const
  Object.assign(kept.session, { activity: 'paused', ...why })
  Object.assign(kept.messages[0]!, { isLeft: true, turnId: kept.messages[0]!.id })
  const now = new Date()
  for (const type of ['session_rewound', 'session_paused', 'session_continued'] as const)
    kept.events.push({ id: 'evt_1', type, level: 'info', message: '', createdAt: now })
  const { body } = await api.get(`/v1/sessions/${id}?branch=all`)
  assert.deepEqual([body.activity, body.reason, body.archivedReason], ['paused', 'budget', 'another won'])
  assert.deepEqual([body.forkedFrom, body.messages[0].left], [why.forkedFrom, true])
  assert.equal('turnId' in body.messages[0], false)
  const refused = await api.get(`/v1/sessions/${id}?branch=other`)
  assert.equal(refused.status, 400)
  assert.match(refused.body.error.message, /^branch: /)
})

test('session: an empty parameter or optional field is none; an empty owner is nobody', async () => {
  const { api } = world
  const body = { prompt: 'x', user_id: 'eve', user_email: '', user_name: '' }
  const { body: made } = await api.post('/v1/sessions', body)
  assert.deepEqual([made.userEmail, made.userName], [undefined, undefined])
  const listed = await api.get('/v1/sessions?user_id=eve&search=&limit=&cursor=')
  assert.deepEqual([listed.status, listed.body.data.length], [200, 1])
  assert.equal((await api.get(`/v1/sessions/${made.id}/events?user_id=bob&after=`)).status, 404)
  assert.equal((await api.get('/api/sandboxes?status=&limit=&cursor=')).status, 200)
  assert.deepEqual((await api.get('/v1/sessions?user_id=')).body.data, [])
  assert.equal((await api.get(`/v1/sessions/${made.id}?user_id=`)).status, 404)
  assert.equal((await api.delete(`/v1/sessions/${made.id}?user_id=`)).status, 404)
})

test('session: messages are the owner’s; an ended session takes none', async () => {
  const { api } = world
  const id = await create()
  const path = `/v1/sessions/${id}/messages`
  const sent = await api.post(path, { message: 'and now red', user_id: 'ann' })
  assert.deepEqual([sent.status, sent.body.messages.at(-1).content], [200, 'and now red'])
  const other = await api.post(path, { message: 'x', user_id: 'bob' })
  assert.deepEqual([other.status, other.body.error.type], [403, 'forbidden'])
  for (const body of [
    {},
    { message: 'x' },
    { user_id: 'ann' },
    { message: '', user_id: 'ann' },
    { message: 5, user_id: 'ann' },
  ]) {
    assert.equal((await api.post(path, body)).status, 400, JSON.stringify(body))
  }
  assert.equal((await api.post(`/v1/sessions/${id}/interrupt`, { user_id: 'ann' })).body.id, id)
  assert.equal((await api.post(`/v1/sessions/${id}/interrupt`, { user_id: 'bob' })).status, 403)
  const ended = await api.delete(`/v1/sessions/${id}?user_id=ann`)
  assert.deepEqual([ended.status, ended.body], [200, { id, status: 'ended' }])
  assert.deepEqual((await api.delete(`/v1/sessions/${id}`)).body, { id, status: 'ended' })
  const late = await api.post(path, { message: 'x', user_id: 'ann' })
  assert.deepEqual([late.status, late.body.error.type], [409, 'conflict'])
})

test('session: a message that waits can be taken back by its owner, once', async () => {
  const { api, stranger } = world
  const id = await create()
  const sent = await api.post(`/v1/sessions/${id}/messages`, { message: 'and now red', user_id: 'ann' })
  const { id: messageId, state } = sent.body.messages.at(-1)
  assert.equal(state, 'queued')
  const path = `/v1/sessions/${id}/messages/${messageId}`
  for (const answer of [
    await api.delete(`${path}?user_id=bob`),
    await stranger.delete(path),
    await api.delete(`/v1/sessions/${id}/messages/msg_unknown00000`),
    await api.delete(`/v1/sessions/session_unknown00000/messages/${messageId}`),
  ]) {
    assert.deepEqual([answer.status, answer.body.error.type], [404, 'not_found'])
  }
  assert.equal((await api.delete(path, { key: null })).status, 401)
  const cancelled = await api.delete(`${path}?user_id=ann`)
  assert.equal(cancelled.status, 200)
  assert.deepEqual([cancelled.body.id, cancelled.body.messages.at(-1).state], [id, 'cancelled'])
  const again = await api.delete(path)
  assert.deepEqual([again.status, again.body.error.type], [409, 'conflict'])
})

interface Events {
  response: Response
  readonly text: string
  until(pattern: RegExp): Promise<void>
  ended: Promise<void>
  close(): void
}

async function follow(id: string, query = '', headers: Record<string, string> = {}): Promise<Events> {
  const aborted = new AbortController()
  const url = `${world.origin}/v1/sessions/${id}/events?api_key=${world.api.key}${query}`
  const response = await fetch(url, { headers, signal: aborted.signal })
  let told: () => void = () => {}
  const parts: string[] = []
  // Of megabytes, which are not to be looked through again with each part.
  let end = ''
  const events: Events = {
    response,
    get text() {
      return parts.join('')
    },
    async until(pattern) {
      while (!pattern.test(end)) {
        await new Promise<void>((resolve) => {
          told = resolve
        })
      }
    },
    ended: Promise.resolve(),
    close: () => aborted.abort(),
  }
  const read = async () => {
    try {
      for await (const chunk of response.body ?? []) {
        const part = Buffer.from(chunk as Uint8Array).toString()
        parts.push(part)
        end = (end + part).slice(-1_100_000)
        told()
      }
    } catch (error) {
      if (!aborted.signal.aborted) throw error
    }
  }
  events.ended = read()
  return events
}

test('session: the stream replays what was, follows what comes, resumes by number, and ends with the session', async () => {
  const { sessions, api } = world
  const id = await create()
  sessions.emit(id, { type: 'ready', harness: 'pi' })
  sessions.emit(id, { type: 'assistant', message: { content: [{ type: 'text', text: 'line\nbreak' }] } })
  const events = await follow(id)
  assert.equal(events.response.status, 200)
  assert.match(events.response.headers.get('content-type') ?? '', /^text\/event-stream/)
  assert.deepEqual(
    ['cache-control', 'x-accel-buffering', 'access-control-allow-origin'].map((name) =>
      events.response.headers.get(name),
    ),
    ['no-store', 'no', '*'],
  )
  await events.until(/id: 2\n/)
  sessions.emit(id, { type: 'result' })
  await events.until(/id: 3\n.*\n\n/)
  assert.equal(
    events.text,
    'retry: 3000\n\n' +
      'id: 1\ndata: {"type":"ready","harness":"pi"}\n\n' +
      'id: 2\ndata: {"type":"assistant","message":{"content":[{"type":"text","text":"line\\nbreak"}]}}\n\n' +
      'id: 3\ndata: {"type":"result"}\n\n',
  )
  const byHeader = await follow(id, '&after=1', { 'last-event-id': '2' })
  const byQuery = await follow(id, '&after=2')
  const empty = await follow(id, '', { 'last-event-id': '' })
  await empty.until(/id: 3\n/)
  await api.delete(`/v1/sessions/${id}`)
  await Promise.all([events.ended, byHeader.ended, byQuery.ended, empty.ended])
  for (const { text } of [byHeader, byQuery]) assert.equal(text, 'retry: 3000\n\nid: 3\ndata: {"type":"result"}\n\n')

  const missed = await follow(id, '', { 'last-event-id': '1' })
  await missed.ended
  assert.match(missed.text, /id: 2\n[^]*id: 3\n/)
  for (const last of ['3', '99']) {
    const over = await follow(id, '', { 'last-event-id': last })
    assert.equal(over.response.status, 204)
  }
})

test('session: a stream from the newest event says where it begins, and a number of the client goes before that', async () => {
  const { api, sessions } = world
  const id = await create()
  const none = await follow(id, '&after=newest')
  await none.until(/id: 0\n\n/)
  sessions.emit(id, { type: 'ready', harness: 'pi' })
  sessions.emit(id, { type: 'result' })
  const newest = await follow(id, '&after=newest')
  await newest.until(/id: 2\n\n/)
  const back = await follow(id, '&after=newest', { 'last-event-id': '1' })
  await back.until(/id: 2\n/)
  sessions.emit(id, { type: 'error' })
  await Promise.all([none, newest, back].map((events) => events.until(/id: 3\n.*\n\n/)))
  const [second, third] = ['{"type":"result"}', '{"type":"error"}'].map(
    (data, at) => `id: ${at + 2}\ndata: ${data}\n\n`,
  )
  assert.equal(none.text, `retry: 3000\n\nid: 0\n\nid: 1\ndata: {"type":"ready","harness":"pi"}\n\n${second}${third}`)
  assert.equal(newest.text, `retry: 3000\n\nid: 2\n\n${third}`)
  assert.equal(back.text, `retry: 3000\n\n${second}${third}`)
  await api.delete(`/v1/sessions/${id}`)
  assert.equal((await follow(id, '&after=newest')).response.status, 204)
})

test('session: numbers that are none are refused before the stream begins', async () => {
  const id = await create()
  for (const query of ['after=-1', 'after=x', 'after=1.5', 'after=99999999999999999999']) {
    const { status, body } = await world.api.get(`/v1/sessions/${id}/events?${query}`)
    assert.deepEqual([status, body.error.type], [400, 'invalid_request'], query)
  }
  const { status } = await world.api.get(`/v1/sessions/${id}/events`, { headers: { 'last-event-id': 'abc' } })
  assert.equal(status, 400)
  assert.equal((await world.api.get(`/v1/sessions/${id}/events`, { key: null })).status, 401)
})

test('session: a client that leaves ends its stream in the server', async () => {
  const id = await create()
  const reading = world.sessions.reading
  const events = await follow(id)
  await events.until(/retry/)
  await eventually(() => world.sessions.reading !== reading)
  events.close()
  await eventually(() => world.sessions.reading <= reading)
  const metrics = await world.api.get('/metrics')
  assert.match(metrics.text, /atoll_open_streams\{kind="events"\} 0/)
})

test('session: a client that does not read is held at its own buffer, costs what the socket holds, and slows nobody', async () => {
  const { sessions } = world
  const id = await create()
  const socket = connect(world.port, '127.0.0.1')
  socket.pause()
  socket.write(`GET /v1/sessions/${id}/events HTTP/1.1\r\nHost: x\r\nX-API-Key: ${world.api.key}\r\n\r\n`)
  const events = await follow(id)
  await eventually(() => sessions.reading >= 2)
  const text = 'x'.repeat(1_000_000)
  for (let index = 0; index < 30; index++) sessions.emit(id, { type: 'assistant', text })
  await events.until(/id: 30\n/)
  assert.equal(sessions.reading, 2)
  assert.ok(sessions.yielded(id) < 30 + 20, 'the slow one has not taken what it cannot send')
  events.close()
  socket.destroy()
  await eventually(() => sessions.reading === 0)
})

test('session: a fork answers 201 with a session of its own, once per idempotency key, and refuses what it must', async () => {
  const { api, stranger, sessions } = world
  const { id, sandboxId, messages } = (await api.post('/v1/sessions', { prompt: 'build a page', user_id: 'ann' })).body
  const path = `/v1/sessions/${id}/fork`
  const early = await api.post(path, { user_id: 'ann' })
  assert.deepEqual([early.status, early.body.error.type], [409, 'conflict'])
  sessions.kept.get(id)!.session.activity = 'idle'
  assert.equal((await api.post(path, {})).status, 400)
  assert.equal((await api.post(path, { user_id: 'bob' })).status, 403)
  assert.equal((await stranger.post(path, { user_id: 'ann' })).status, 404)
  assert.equal((await api.post(path, { user_id: 'ann' }, { key: null })).status, 401)
  const { token } = (await api.post(`/v1/sessions/${id}/tokens`, { user_id: 'ann', scope: 'steer' })).body
  assert.equal((await api.post(`${path}?token=${token}`, { user_id: 'ann' }, { key: null })).status, 401)
  const options = { headers: { 'idempotency-key': 'once' } }
  const forked = await api.post(path, { user_id: 'ann' }, options)
  assert.equal(forked.status, 201)
  assert.notEqual(forked.body.id, id)
  assert.notEqual(forked.body.sandboxId, sandboxId)
  assert.equal(forked.body.messages[0].content, messages[0].content)
  const again = await api.post(path, { user_id: 'ann' }, options)
  assert.deepEqual([again.status, again.body.id], [201, forked.body.id])
})

test('session: a restart answers the session with its new sandbox, and refuses what it must', async () => {
  const { api, stranger, sessions } = world
  const { id, sandboxId } = (await api.post('/v1/sessions', { prompt: 'build a page', user_id: 'ann' })).body
  const path = `/v1/sessions/${id}/restart`
  const early = await api.post(path, { user_id: 'ann' })
  assert.deepEqual([early.status, early.body.error.type], [409, 'conflict'])
  sessions.kept.get(id)!.session.activity = 'failed'
  assert.equal((await api.post(path, {})).status, 400)
  assert.equal((await api.post(path, { user_id: 'ann', checkpoint_id: 7 })).status, 400)
  assert.equal((await api.post(path, { user_id: 'bob' })).status, 403)
  assert.equal((await stranger.post(path, { user_id: 'ann' })).status, 404)
  assert.equal((await api.post(path, { user_id: 'ann' }, { key: null })).status, 401)
  const restarted = await api.post(path, { user_id: 'ann', checkpoint_id: 'cp-abc' })
  assert.deepEqual([restarted.status, restarted.body.id], [200, id])
  assert.notEqual(restarted.body.sandboxId, sandboxId)
  assert.equal(sessions.kept.get(id)!.session.checkpointId, 'cp-abc')
})

test('session: an export has the session, its messages, its events and its stream, one JSON object a line', async () => {
  const { api, sessions } = world
  const id = await create()
  sessions.emit(id, { type: 'ready', harness: 'pi' })
  sessions.emit(id, { type: 'error', message: 'two\nlines', code: 'x', fatal: false })
  const { status, headers, text } = await api.get(`/v1/sessions/${id}/export?user_id=ann`)
  assert.deepEqual([status, headers['content-type']], [200, 'application/x-ndjson; charset=utf-8'])
  assert.ok(text.endsWith('}\n'))
  const lines = text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, Record<string, unknown>>)
  const whole = (await api.get(`/v1/sessions/${id}`)).body
  const { messages, events, ...session } = whole
  assert.deepEqual(lines.slice(0, 3), [
    { type: 'session', session },
    { type: 'message', message: messages[0] },
    { type: 'event', event: events[0] },
  ])
  assert.deepEqual(
    lines.slice(3).map((line) => [line['type'], line['stream']?.['sequence'], line['stream']?.['data']]),
    [
      ['stream', 1, { type: 'ready', harness: 'pi' }],
      ['stream', 2, { type: 'error', message: 'two\nlines', code: 'x', fatal: false }],
    ],
  )
})

test('session: an export is its owner’s', async () => {
  const id = await create()
  for (const answer of [
    await world.api.get(`/v1/sessions/${id}/export?user_id=bob`),
    await world.stranger.get(`/v1/sessions/${id}/export`),
    await world.api.get('/v1/sessions/session_unknown00000/export'),
  ]) {
    assert.deepEqual([answer.status, answer.body.error.type], [404, 'not_found'])
  }
  assert.equal((await world.api.get(`/v1/sessions/${id}/export`, { key: null })).status, 401)
})

test('session: a client that does not read is sent no more than its socket holds', async () => {
  const { sessions, api } = world
  const id = await create()
  const text = 'x'.repeat(1_000_000)
  for (let index = 0; index < 60; index++) sessions.emit(id, { type: 'assistant', text })
  const socket = connect(world.port, '127.0.0.1')
  socket.pause()
  socket.write(`GET /v1/sessions/${id}/export HTTP/1.1\r\nHost: x\r\nX-API-Key: ${api.key}\r\n\r\n`)
  await eventually(() => sessions.yielded(id) !== 0)
  await new Promise((resolve) => setTimeout(resolve, 300))
  assert.ok(sessions.yielded(id) < 40, `${sessions.yielded(id)} of 60 were taken`)
  socket.destroy()
  const { text: all } = await api.get(`/v1/sessions/${id}/export`)
  assert.equal(all.split('\n').length, 1 + 1 + 1 + 60 + 1)
})
