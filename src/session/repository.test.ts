import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { AgentOutput } from './agent-connection.ts'
import { defaultSessionLimits, defaultSessionTimings } from './config.ts'
import { SessionRepository } from './repository.ts'
import type { Artifact, Message, StreamEvent } from './session.ts'
import { loadTurn } from './state.ts'
import type { SessionChange } from './store.ts'
import { emptySessionStore, insertSession } from './testing/store.ts'

const createdAt = new Date()
const message: Message = { id: 'msg_1', role: 'user', content: 'x', state: 'started', createdAt }
const agentConfig = {
  harness: 'pi',
  model: 'demo',
  cwd: '/workspace/app',
  systemPrompt: 'a long text',
  skills: { '/workspace/agent/SKILL.md': 'a long text' },
  envs: {},
}

/** A repository of one session with a turn, and all that it has committed. */
async function begun() {
  const store = emptySessionStore()
  const changes: SessionChange[] = []
  const fields = { agentConfig, activity: 'working', agentProcessId: 'ag-1' } as const
  const session = await insertSession(store, fields, [message])
  const commit: typeof store.commit = async (id, change) => {
    changes.push(change)
    return await store.commit(id, change)
  }
  const bus = { publish() {}, subscribe: () => () => {}, async close() {} }
  const repository = new SessionRepository(
    { store: { ...store, commit }, bus, config: {}, limits: defaultSessionLimits, timings: defaultSessionTimings },
    session.id,
  )
  let offset = 0
  const say = (...output: AgentOutput[]) =>
    repository.apply({ type: 'agent_output', processId: 'ag-1', output, offset: ++offset })
  const tell = (...artifacts: Artifact[]) => say(...artifacts.map((one) => ({ type: 'artifact' as const, ...one })))
  const kept = async () => (await store.session(session.id))!.artifacts
  const written = () => changes.filter((change) => change.session?.artifacts !== undefined).length
  return { session, repository, say, tell, kept, written }
}

test('repository: holds no texts of the configuration, read or committed', async () => {
  const { session, repository, tell } = await begun()
  for (const read of [() => repository.read(), () => tell({ path: '/a', summary: 's' })]) {
    const state = await read()
    assert.equal(state.session.id, session.id)
    assert.equal(state.turn?.messageId, message.id)
    assert.equal(JSON.stringify(state).includes('a long text'), false)
  }
})

test('artifacts: there is room for two hundred of the usual and few of the longest; the oldest give way', async () => {
  const { tell, kept } = await begun()
  const usual = Array.from({ length: 300 }, (_, index) => ({
    path: `/workspace/app/src/components/${'x'.repeat(100)}/${index}.tsx`,
    summary: 'Created or changed',
  }))
  await tell(...usual)
  assert.deepEqual(await kept(), usual.slice(-200).toReversed())
  const longest = Array.from({ length: 100 }, (_, index) => ({
    path: `/${index}`.padEnd(4096, '\u6f22'),
    summary: '\u5b57'.repeat(1000),
  }))
  for (const artifact of longest) await tell(artifact)
  const after = await kept()
  const numbers = after.map(({ path }) => Number.parseInt(path.slice(1), 10))
  assert.deepEqual(
    numbers,
    after.map((_artifact, index) => 99 - index),
  )
  assert.ok(after.length >= 8)
  assert.ok(Buffer.byteLength(JSON.stringify(after)) <= 128 * 1024)
})

test('artifacts: they are written when they change, each at once, so that a server that dies loses none', async () => {
  const { tell, kept, written } = await begun()
  for (let n = 1; n <= 100; n++) {
    await tell({ path: `/${n}`, summary: 's' })
    assert.equal((await kept()).length, n)
  }
  await tell({ path: '/100', summary: 's' })
  await tell()
  assert.equal(written(), 100)
  await tell({ path: '/1', summary: 's' })
  await tell({ path: '/1', summary: 'another' })
  assert.equal(written(), 102)
  assert.deepEqual((await kept())[0], { path: '/1', summary: 'another' })
})

for (const end of ['ends', 'is cut off'] as const) {
  test(`artifacts: an agent that reports them on and on has them written a bounded number of times, and when its turn ${end}`, async () => {
    const { repository, say, tell, kept, written } = await begun()
    for (let n = 1; n <= 1000; n++) await tell({ path: `/${n}`, summary: 's' })
    assert.equal(written(), 200)
    if (end === 'ends') {
      await say({ type: 'turn_complete', message_id: message.id, session_id: 's' })
    } else {
      await repository.apply({ type: 'end', tokenHash: 'unused' })
    }
    assert.equal(written(), 201)
    assert.deepEqual(
      (await kept()).map(({ path }) => path),
      Array.from({ length: 200 }, (_, index) => `/${1000 - index}`),
    )
  })
}

test('a turn is read back whole, one page at a time, however large its events are', async () => {
  const store = emptySessionStore()
  const asked: Message = { id: 'msg_2', role: 'user', content: '', state: 'started', createdAt }
  const { id } = await insertSession(store, {}, [asked])
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
