import assert from 'node:assert/strict'
import { beforeEach, test } from 'node:test'
import { newId } from '../lib/id.ts'
import { silentLog } from '../lib/log.ts'
import { eventually } from '../lib/testing/eventually.ts'
import type { DiskRef, SandboxService, TreeComparison } from '../sandbox/index.ts'
import type { Session } from './session.ts'
import { emptySessionStore, insertSession, orgId } from './testing/store.ts'
import { Story } from './testing/turns.ts'
import { simple, World } from './testing/world.ts'
import { TurnFilesRecorder } from './turn-files.ts'

const idOf = (disk: DiskRef | undefined) => {
  if (disk === undefined) return 'empty'
  return 'checkpointId' in disk ? disk.checkpointId : 'no checkpoint'
}
const changes = (path: string): TreeComparison => ({
  files: [{ path, oldPath: 'b', change: 'renamed', isBinary: false, addedLines: 2, removedLines: 1 }],
  addedLines: 2,
  removedLines: 1,
  isCut: false,
})

let store = emptySessionStore()
let session: Session
let story: Story
let closing: AbortController
/** What was compared, and how. */
let compared: string[]
let compare: (from: string, to: string) => Promise<TreeComparison>
let recorder: TurnFilesRecorder

function recorderWith(hasTrees = true): TurnFilesRecorder {
  const trees = {
    compareDisks: async (_orgId: string, from: DiskRef | undefined, to: DiskRef, { folder }: { folder: string }) => {
      compared.push(`${idOf(from)} ${idOf(to)} ${folder}`)
      return await compare(idOf(from), idOf(to))
    },
  }
  const sandboxes = { trees: hasTrees ? trees : undefined } as unknown as SandboxService
  return new TurnFilesRecorder({ store, sandboxes, log: silentLog, signal: closing.signal })
}

beforeEach(async () => {
  store = emptySessionStore()
  session = await insertSession(store)
  story = new Story(store, session.id)
  closing = new AbortController()
  compared = []
  compare = async () => changes('a')
  recorder = recorderWith()
})

async function filesOf(messageId: string) {
  return (await store.turn(session.id, messageId))?.files
}

test('turn files: those of a turn are what differs from the end of the turn before', async () => {
  const first = await story.turn('a')
  const second = await story.turn('b', { parentId: first.id })
  recorder.note(session, second.id)
  await recorder.close()
  assert.deepEqual(compared, [`${first.checkpointId} ${second.checkpointId} /workspace/app`])
  assert.deepEqual(await filesOf(second.id), {
    files: [{ path: 'a', change: 'renamed', isBinary: false, addedLines: 2, removedLines: 1 }],
    addedLines: 2,
    removedLines: 1,
    isCut: false,
  })
})

test('turn files: after a rewind they are what differs from where it led', async () => {
  const first = await story.turn('a')
  const second = await story.turn('b', { parentId: first.id })
  const to = { turnId: first.id, checkpointId: first.checkpointId }
  await story.rewind(to)
  const third = await story.turn('c', { parentId: first.id })
  recorder.note(session, third.id)
  await recorder.close()
  // The disk of the present stays below the conversation of then.
  const undo = await story.rewind(to, 'conversation')
  const fourth = await story.turn('d', { parentId: first.id })
  recorder.note(session, fourth.id)
  await recorder.close()
  // The disk of then goes below the conversation of the present.
  await story.rewind({ turnId: fourth.id, checkpointId: second.checkpointId }, 'machine')
  const fifth = await story.turn('e', { parentId: fourth.id })
  recorder.note(session, fifth.id)
  await recorder.close()
  assert.deepEqual(
    compared.map((line) => line.split(' ').slice(0, 2)),
    [
      [first.checkpointId, third.checkpointId],
      [undo, fourth.checkpointId],
      [second.checkpointId, fifth.checkpointId],
    ],
  )
})

test('turn files: they stay unknown where the turn before has no checkpoint', async () => {
  const first = await story.turn('a')
  const second = await story.turn('b', { parentId: first.id, isSaved: false })
  const third = await story.turn('c', { parentId: second.id })
  recorder.note(session, third.id)
  await recorder.close()
  assert.deepEqual([compared, await filesOf(third.id)], [[], undefined])
})

test('turn files: the first turn of a session from an image is compared with an empty folder', async () => {
  const first = await story.turn('a')
  recorder.note(session, first.id)
  await recorder.close()
  assert.equal(compared[0]?.split(' ')[0], 'empty')
})

test('turn files: they stay unknown where turns were before of which nothing is written down', async () => {
  const old = { id: newId('msg_'), role: 'user', content: 'a', state: 'consumed', createdAt: new Date() } as const
  session = await insertSession(store, {}, [old])
  const begun = await new Story(store, session.id).turn('b')
  recorder.note(session, begun.id)
  await recorder.close()
  assert.deepEqual(compared, [])
})

test('turn files: the first turn is compared with the checkpoint that the session began with', async () => {
  session = await insertSession(store, { checkpointId: 'cp-given' })
  const begun = await new Story(store, session.id).turn('a')
  recorder.note(session, begun.id)
  await recorder.close()
  assert.equal(compared[0]?.split(' ')[0], 'cp-given')
})

test('turn files: the first turn of a fork is compared with the turn at whose end it was forked', async () => {
  const source = await story.turn('a')
  const fork = { forkedFrom: session.id, forkPoint: source.id, checkpointId: 'cp-fork', forkCheckpointOf: 'sb-1' }
  session = await insertSession(store, fork)
  const begun = await new Story(store, session.id).turn('b')
  recorder.note(session, begun.id)
  await recorder.close()
  assert.equal(compared[0]?.split(' ')[0], source.checkpointId)
})

test('turn files: what is kept is bounded', async () => {
  const first = await story.turn('a')
  const second = await story.turn('b', { parentId: first.id })
  const [file] = changes('').files
  const many = (path: string, count: number) =>
    Array.from({ length: count }, (_, at) => ({ ...file!, path: path + at }))
  compare = async () => ({ files: many('a', 150), addedLines: 300, removedLines: 150, isCut: false })
  recorder.note(session, second.id)
  await recorder.close()
  const kept = await filesOf(second.id)
  assert.deepEqual([kept?.files.length, kept?.addedLines, kept?.isCut], [100, 300, true])
  compare = async () => ({ files: many('a'.repeat(4000), 50), addedLines: 0, removedLines: 0, isCut: false })
  recorder.note(session, second.id)
  await recorder.close()
  const long = await filesOf(second.id)
  assert.deepEqual([long?.files.length, long?.isCut], [4, true])
})

test('turn files: one turn of an organisation is compared at a time, and the oldest of too many are dropped', async () => {
  const first = await story.turn('a')
  const second = await story.turn('b', { parentId: first.id })
  const other = await insertSession(store, { orgId: 'org_2' })
  const others = new Story(store, other.id)
  const theirs = await others.turn('c', { parentId: (await others.turn('b')).id })
  const blocked = Promise.withResolvers<void>()
  let atOnce = 0
  compare = async (from) => {
    atOnce++
    if (from === first.checkpointId) {
      assert.equal(atOnce, 1)
      await blocked.promise
    }
    atOnce--
    return changes('a')
  }
  for (let noted = 0; noted < 150; noted++) recorder.note(session, second.id)
  await eventually(() => assert.equal(compared.length, 1), { what: 'the first comparison' })
  atOnce = 0
  recorder.note(other, theirs.id)
  await eventually(() => assert.equal(compared.length, 2), { what: 'that of the other organisation' })
  atOnce = 1
  blocked.resolve()
  await recorder.close()
  assert.equal(compared.length, 1 + 100 + 1)
})

test('turn files: a failure leaves them unknown, and the next turn is compared', async () => {
  const first = await story.turn('a')
  const second = await story.turn('b', { parentId: first.id })
  const third = await story.turn('c', { parentId: second.id })
  compare = async (from) => {
    if (from === first.checkpointId) throw new Error('no disk')
    return changes('a')
  }
  recorder.note(session, second.id)
  recorder.note(session, third.id)
  await recorder.close()
  assert.deepEqual([await filesOf(second.id), (await filesOf(third.id))?.addedLines], [undefined, 2])
})

test('turn files: nothing is compared where disks cannot be read, or once the server closes', async () => {
  const first = await story.turn('a')
  const second = await story.turn('b', { parentId: first.id })
  const without = recorderWith(false)
  without.note(session, second.id)
  await without.close()
  closing.abort()
  recorder.note(session, second.id)
  await recorder.close()
  assert.deepEqual(compared, [])
})

test('turn files: a session finds them out when a turn is saved', async (t) => {
  const world = new World()
  t.after(() => world.close())
  const service = world.serve({ checkpoints: 'turn' })
  const { session: made } = await service.create(orgId, simple)
  await world.until(made.id, 'idle')
  await world.turn(service, made.id, 'b')
  await world.eventually('the files', async () => {
    const { turns } = await service.timeline.page(orgId, made.id, { limit: 1 })
    assert.ok(turns[0]?.point)
    assert.deepEqual(turns[0].turn.files, { files: [], addedLines: 0, removedLines: 0, isCut: false })
  })
})
