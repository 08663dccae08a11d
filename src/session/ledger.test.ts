import assert from 'node:assert/strict'
import { test } from 'node:test'
import { defaultSessionLimits } from './config.ts'
import { Ledger } from './ledger.ts'
import type { Artifact, Message } from './session.ts'
import type { SessionChange } from './store.ts'
import { emptySessionStore, insertSession } from './testing/store.ts'

const createdAt = new Date()
const message: Message = { id: 'msg_1', role: 'user', content: 'x', state: 'queued', createdAt }
const agentConfig = {
  harness: 'pi',
  model: 'demo',
  cwd: '/workspace/app',
  systemPrompt: 'a long text',
  skills: { '/workspace/agent/SKILL.md': 'a long text' },
  envs: {},
}

/** A ledger over one session with a turn that has begun, and all that it has committed since. */
async function begun() {
  const store = emptySessionStore()
  const changes: SessionChange[] = []
  const session = await insertSession(store, { agentConfig }, [message])
  const commit: typeof store.commit = async (id, change) => {
    changes.push(change)
    return await store.commit(id, change)
  }
  const bus = { publish() {}, subscribe: () => () => {}, async close() {} }
  const open = () => new Ledger({ store: { ...store, commit }, bus, limits: defaultSessionLimits }, session.id)
  const ledger = open()
  await ledger.write((draft) => draft.startTurn(message))
  changes.length = 0
  let agentOffset = 0
  const tell = (...artifacts: Artifact[]) =>
    ledger.write((draft) => {
      for (const artifact of artifacts) draft.take({ type: 'artifact', ...artifact })
      draft.set({ agentOffset: ++agentOffset })
    })
  const kept = async () => (await store.session(session.id))!.artifacts
  const written = () => changes.filter((change) => change.session?.artifacts !== undefined).length
  return { session, ledger, open, tell, kept, written }
}

test('a ledger holds no texts of the configuration, read or written', async () => {
  const { session, ledger, open } = await begun()
  for (const one of [ledger, open()]) {
    const progress = await one.read()
    assert.equal(progress.session.id, session.id)
    assert.equal(progress.turn?.messageId, message.id)
    assert.equal(JSON.stringify(progress).includes('a long text'), false)
  }
})

test('artifacts have room for two hundred of the usual and few of the longest; the oldest give way', async () => {
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

test('artifacts are written when they change, each at once, so that a server that dies loses none', async () => {
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
  test(`an agent that tells artifacts on and on has them written a bounded number of times, and when its turn ${end}`, async () => {
    const { ledger, tell, kept, written } = await begun()
    for (let n = 1; n <= 1000; n++) await tell({ path: `/${n}`, summary: 's' })
    assert.equal(written(), 200)
    if (end === 'ends') {
      await ledger.write((draft) => draft.take({ type: 'turn_complete', message_id: message.id, session_id: 's' }))
    } else {
      await ledger.write((draft) => draft.fail('oom', 'The sandbox is lost.'))
    }
    assert.equal(written(), 201)
    assert.deepEqual(
      (await kept()).map(({ path }) => path),
      Array.from({ length: 200 }, (_, index) => `/${1000 - index}`),
    )
    await tell({ path: '/next', summary: 's' })
    assert.equal((await kept())[0]?.path, '/next')
  })
}
