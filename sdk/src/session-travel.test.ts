import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { ConflictError, NotFoundError, Session, TooLargeError, type SessionInfo } from './index.ts'
import { fakeServer, json } from './testing/fake-server.ts'

const info = { id: 'session_1', userId: 'ada', previewUrl: '', sandboxId: '' } as SessionInfo
const path = '/v1/sessions/session_1'

/** A session whose server answers with these in turn, and what it was asked: method, path below the session, body. */
async function answered(t: TestContext, ...bodies: unknown[]) {
  const { client, asked } = await fakeServer(
    t,
    bodies.map((body) => json(200, body)),
  )
  const told = () =>
    asked.map(({ method, path: of, body }) => `${method} ${of.replace(path, '')} ${body}`.trim().replaceAll('"', "'"))
  return { session: new Session(client, info), told, asked }
}

const turn = (messageId: string) => ({ messageId })

test('timeline: turns are read page by page, or one page with what undoes the newest rewind', async (t) => {
  const page = { turns: [turn('msg_2')], nextCursor: 'msg_2', undoCheckpointId: 'cp-1' }
  const last = { turns: [turn('msg_1')], nextCursor: null, undoCheckpointId: 'cp-1' }
  const { session, told } = await answered(t, page, last, page, page)
  const timeline = session.timeline({ branch: 'all' })
  assert.deepEqual(await Array.fromAsync(timeline), [turn('msg_2'), turn('msg_1')])
  assert.deepEqual(await timeline.page({ limit: 1, cursor: 'msg_3' }), page)
  assert.deepEqual(await session.timeline().page(), page)
  assert.deepEqual(told(), [
    'GET /timeline?branch=all',
    'GET /timeline?branch=all&cursor=msg_2',
    'GET /timeline?branch=all&limit=1&cursor=msg_3',
    'GET /timeline',
  ])
})

test('fork: one is a session, several are a list in which one that did not start is an error', async (t) => {
  const failure = { error: { type: 'conflict', message: 'no room', code: 'conflict' } }
  const several = { sessions: [{ ...info, id: 'session_2' }, failure] }
  const place = { atEvent: 12, afterEvent: 9, exact: false, checkpointId: 'cp-1', messageId: 'msg_1' }
  const { session, told, asked } = await answered(t, info, { ...info, fork: place }, several, several)
  assert.equal((await session.fork()).forkedAt, undefined)
  assert.deepEqual((await session.fork({ name: 'two', at: { eventId: 12 } })).forkedAt, place)
  const [made, failed] = await session.fork({ count: 2, at: { messageId: 'msg_1' } })
  assert.ok(made !== undefined && 'session' in made && failed !== undefined && 'error' in failed)
  assert.equal(made.session.id, 'session_2')
  assert.ok(failed.error instanceof ConflictError)
  assert.equal(failed.error.message, 'no room')
  const agent = { checkpoints: 'disk', secretEnvs: ['A'], capsuleOnError: true } as const
  await session.fork({
    at: { checkpointId: 'cp-1' },
    variants: [{ message: 'blue', model: 'm', systemPrompt: 's', envs: { A: '1' }, agent }],
  })
  assert.deepEqual(told(), [
    "POST /fork {'user_id':'ada'}",
    "POST /fork {'user_id':'ada','name':'two','at':{'event_id':12}}",
    "POST /fork {'user_id':'ada','at':{'message_id':'msg_1'},'count':2}",
    "POST /fork {'user_id':'ada','at':{'checkpoint_id':'cp-1'},'variants':[{'message':'blue','model':'m','system_prompt':'s'," +
      "'envs':{'A':'1'},'agent_config':{'checkpoints':'disk','secret_envs':['A'],'capsule_on_error':true}}]}",
  ])
  assert.equal(new Set(asked.map(({ headers }) => headers['idempotency-key'])).size, 4)
})

test('rewind: it is previewed, carried out, undone, and adopts a fork', async (t) => {
  const preview = { checkpointId: 'cp-1', turnsLeft: [] }
  const rewound = { session: info, restoredPrompt: 'blue', undoCheckpointId: 'cp-2', processes: 'restored' }
  const timeline = { turns: [], nextCursor: null, undoCheckpointId: 'cp-2' }
  const { session, told, asked } = await answered(t, preview, preview, rewound, timeline, rewound, rewound, rewound)
  assert.deepEqual(await session.previewRewind({ to: { messageId: 'msg_1' } }), preview)
  await session.rewind({ to: { checkpointId: 'cp-1' }, preview: true, what: 'machine' })
  assert.deepEqual(await session.rewind({ to: { eventId: 3 }, what: 'all' }), rewound)
  assert.deepEqual(await session.undo(), rewound)
  await session.adopt('session_2')
  await session.adopt(session)
  assert.deepEqual(told(), [
    "POST /rewind?preview=true {'user_id':'ada','to':{'message_id':'msg_1'}}",
    "POST /rewind?preview=true {'user_id':'ada','to':{'checkpoint_id':'cp-1'},'what':'machine'}",
    "POST /rewind {'user_id':'ada','to':{'event_id':3},'what':'all'}",
    'GET /timeline?limit=1',
    "POST /rewind {'user_id':'ada','to':{'checkpoint_id':'cp-2'}}",
    "POST /adopt {'user_id':'ada','from':'session_2'}",
    "POST /adopt {'user_id':'ada','from':'session_1'}",
  ])
  assert.deepEqual(
    asked.map(({ headers }) => headers['idempotency-key'] !== undefined),
    [false, false, true, false, true, true, true],
  )
})

test('undo: without a rewind it is an error, and nothing is asked for', async (t) => {
  const { session, told } = await answered(t, { turns: [], nextCursor: null, undoCheckpointId: null })
  await assert.rejects(session.undo(), NotFoundError)
  assert.deepEqual(told(), ['GET /timeline?limit=1'])
})

test('diff: a session, a checkpoint or a message is the other side, as a comparison and as a patch', async (t) => {
  const patch = 'diff --git a/a b/a\n'
  const { session, told, asked } = await answered(t, { files: [] }, patch, patch, patch)
  assert.deepEqual(await session.diff('msg_1'), { files: [] })
  assert.equal(await session.patch(session), JSON.stringify(patch))
  await assert.rejects(session.patch('cp-1', { bytesMax: 3 }), TooLargeError)
  const stream = await session.patchStream('cp-1')
  assert.equal(await new Response(stream).text(), JSON.stringify(patch))
  assert.deepEqual(told(), [
    'GET /diff?against=msg_1',
    'GET /diff?against=session_1',
    'GET /diff?against=cp-1',
    'GET /diff?against=cp-1',
  ])
  assert.deepEqual(
    asked.map(({ headers }) => headers['accept'] === 'text/x-diff'),
    [false, true, true, true],
  )
})

test('session: what forks would take is asked, limits change, and messages of all branches are read', async (t) => {
  const { session, told } = await answered(t, { fork: 1 }, { fork: 3 }, info, info)
  await session.estimate()
  assert.deepEqual(await session.estimate(3), { fork: 3 })
  await session.update({ maxCostUsd: 5, maxTokens: 9, checkpoints: 'none' })
  await session.info({ branch: 'all' })
  assert.deepEqual(told(), [
    'GET /estimate?fork=1',
    'GET /estimate?fork=3',
    "PATCH  {'user_id':'ada','agent_config':{'max_tokens':9,'max_cost_usd':5,'checkpoints':'none'}}",
    'GET ?branch=all',
  ])
})
