import assert from 'node:assert/strict'
import { get } from 'node:http'
import { beforeEach, test } from 'node:test'
import { ServiceError } from '../../src/errors.ts'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { useWorld } from '../support/world.ts'

const world = useWorld()
const patchHeaders = { headers: { accept: 'text/x-diff' } }

async function create(): Promise<string> {
  const { status, body, text } = await world.api.post('/v1/sessions', { prompt: 'build a page', user_id: 'ann' })
  assert.equal(status, 201, text)
  return body.id
}

beforeEach(() => {
  world.sessions.comparisonError = undefined
})

test('timeline: a page has turns with what is known of them', async () => {
  const id = await create()
  const { body: session } = await world.api.get(`/v1/sessions/${id}`)
  const [{ id: messageId, createdAt }] = session.messages
  const answer = await world.api.get(`/v1/sessions/${id}/timeline?user_id=ann&limit=5&branch=all`)
  assert.equal(answer.status, 200, answer.text)
  assert.deepEqual(answer.body, {
    turns: [
      {
        messageId,
        message: 'build a page',
        parentMessageId: null,
        firstEvent: 1,
        lastEvent: null,
        startedAt: createdAt,
        endedAt: null,
        durationMs: null,
        result: null,
        checkpoint: null,
        files: null,
        usage: { inputTokens: 5, cacheReadTokens: 0, cacheWriteTokens: 0, outputTokens: 2 },
        preview: null,
        left: false,
        forks: [{ id: 'session_fork', status: 'running', activity: 'paused', createdAt }],
        forksCut: false,
      },
    ],
    nextCursor: messageId,
    undoCheckpointId: 'cp-undo',
  })
  assert.deepEqual(world.sessions.asked['timeline'], { limit: 5, isOwnersOnly: true, userId: 'ann', branch: 'all' })
  const next = await world.api.get(`/v1/sessions/${id}/timeline?cursor=${messageId}`)
  assert.deepEqual(next.body, { turns: [], nextCursor: null, undoCheckpointId: null })
  assert.deepEqual(world.sessions.asked['timeline'], { limit: 20, isOwnersOnly: false, cursor: messageId })
})

test('timeline: bad input names the parameter, and a stranger finds nothing', async () => {
  const id = await create()
  const path = `/v1/sessions/${id}/timeline`
  for (const [query, message] of [
    ['limit=0', /^limit: /],
    ['limit=101', /^limit: /],
    ['branch=left', /^branch: /],
    ['cursor=x', /^cursor is not one/],
    ['turn=1', /turn/],
  ] as const) {
    const answer = await world.api.get(`${path}?${query}`)
    assert.equal(answer.status, 400, query)
    assert.match(answer.body.error.message, message)
  }
  assert.equal((await world.api.get(`${path}?user_id=bob`)).status, 404)
  assert.equal((await world.stranger.get(path)).status, 404)
})

test('timeline: a token of the session reads it, and nothing that names other sessions', async () => {
  const id = await create()
  const { body } = await world.api.post(`/v1/sessions/${id}/tokens`, { user_id: 'ann', scope: 'read' })
  const withToken = (path: string) => world.api.get(`/v1/sessions/${id}/${path}token=${body.token}`, { key: null })
  assert.equal((await withToken('timeline?')).status, 200)
  assert.deepEqual(world.sessions.asked['timeline'], { limit: 20, isOwnersOnly: true })
  assert.equal((await withToken('diff?against=session_other&')).status, 401)
  assert.equal((await withToken('estimate?')).status, 401)
})

test('diff: the answer has both sides', async () => {
  const id = await create()
  const answer = await world.api.get(`/v1/sessions/${id}/diff?user_id=ann&against=session_other`)
  assert.equal(answer.status, 200, answer.text)
  const usage = { inputTokens: 5, cacheReadTokens: 0, cacheWriteTokens: 0, outputTokens: 2, totalCostUsd: 0.5 }
  const { previewUrl } = (await world.api.get(`/v1/sessions/${id}`)).body
  assert.deepEqual(answer.body, {
    against: { type: 'session', id: 'session_other' },
    folder: '/workspace/app',
    files: [{ path: 'a', change: 'added', isBinary: false, addedLines: 1, removedLines: 0 }],
    addedLines: 1,
    removedLines: 0,
    isCut: false,
    usage: { this: usage, against: usage },
    durationMs: { this: 8, against: null },
    preview: { this: { url: previewUrl, state: 'ready' }, against: { url: null, state: null } },
  })
  const ofCheckpoint = await world.api.get(`/v1/sessions/${id}/diff?against=cp-1`)
  const { usage: used, durationMs, preview } = ofCheckpoint.body
  assert.deepEqual([used.against, durationMs.against, preview.against], [null, null, null])
})

test('diff: a client that accepts a patch gets one', async () => {
  const id = await create()
  const answer = await world.api.raw('GET', `/v1/sessions/${id}/diff?against=cp-1`, patchHeaders)
  assert.deepEqual(
    [answer.status, answer.headers['content-type'], answer.text],
    [200, 'text/x-diff; charset=utf-8', 'diff --git a/a b/a\n'],
  )
})

test('diff: bad input and what is unknown are told before the first byte', async () => {
  const id = await create()
  const path = `/v1/sessions/${id}/diff`
  for (const query of ['', '?against=', `?against=${'x'.repeat(201)}`]) {
    const answer = await world.api.get(path + query, patchHeaders)
    assert.equal(answer.status, 400, query)
    assert.match(answer.body.error.message, /^against: /)
  }
  assert.equal((await world.stranger.get(`${path}?against=${id}`)).status, 404)
  assert.equal((await world.api.get(`${path}?against=${id}&user_id=bob`, patchHeaders)).status, 404)
  for (const [code, status] of [
    ['not_found', 404],
    ['conflict', 409],
    ['not_implemented', 501],
    ['no_capacity', 503],
  ] as const) {
    world.sessions.comparisonError = new ServiceError(code, 'it is so')
    for (const options of [{}, patchHeaders]) {
      const answer = await world.api.get(`${path}?against=${id}`, options)
      assert.equal(answer.status, status)
      assert.deepEqual([answer.body.error.code, answer.body.error.message], [code, 'it is so'])
    }
  }
})

test('diff: the work ends when the client leaves', async (t) => {
  const { sessions } = world
  const id = await create()
  const { patch } = sessions
  t.after(() => {
    sessions.patch = patch
  })
  let isOver = false
  sessions.patch = (async function* () {
    try {
      for (;;) {
        yield Buffer.alloc(64 * 1024, 'x')
        await new Promise(setImmediate)
      }
    } finally {
      isOver = true
    }
  })()
  const headers = { 'x-api-key': world.api.key, accept: 'text/x-diff' }
  const call = get(`${world.origin}/v1/sessions/${id}/diff?against=cp-1`, { headers }, (response) => {
    response.once('data', () => call.destroy())
    response.on('error', () => undefined)
  })
  call.on('error', () => undefined)
  await eventually(() => isOver, { what: 'the end of the patch' })
  const { signal } = sessions.asked['patch'] as { signal: AbortSignal }
  await eventually(() => signal.aborted, { what: 'the abort' })
})

test('estimate: what is not measured is null', async () => {
  const id = await create()
  const path = `/v1/sessions/${id}/estimate`
  const answer = await world.api.get(`${path}?user_id=ann&fork=3`)
  assert.equal(answer.status, 200, answer.text)
  assert.deepEqual(answer.body, {
    fork: 3,
    diskBytes: null,
    checkpointBytes: null,
    memoryBytes: { now: null, max: 1024 },
    turns: 1,
    tokensPerTurn: null,
    costPerTurnUsd: 0.5,
    sessionsLeft: null,
  })
  assert.equal((await world.api.get(path)).body.fork, 1)
  for (const fork of ['0', '21', '1.5', 'x']) {
    const refused = await world.api.get(`${path}?fork=${fork}`)
    assert.equal(refused.status, 400, fork)
    assert.match(refused.body.error.message, /^fork: /)
  }
  assert.equal((await world.api.get(`${path}?user_id=bob`)).status, 404)
  assert.equal((await world.stranger.get(path)).status, 404)
})
