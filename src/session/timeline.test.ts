import assert from 'node:assert/strict'
import { beforeEach, test } from 'node:test'
import { Ownership } from './ownership.ts'
import type { Session } from './session.ts'
import { emptySessionStore, insertSession, orgId } from './testing/store.ts'
import { Story } from './testing/turns.ts'
import { refused } from './testing/world.ts'
import { Timelines } from './timeline.ts'

let store = emptySessionStore()
let timelines: Timelines
let session: Session
let story: Story

beforeEach(async () => {
  store = emptySessionStore()
  timelines = new Timelines({ store, ownership: new Ownership(store) })
  session = await insertSession(store)
  story = new Story(store, session.id)
})

test('timeline: turns come newest first, with their checkpoints, messages and usage', async () => {
  const first = await story.turn('a page', { inputTokens: 10, costNanoUsd: 1_000_000 })
  const second = await story.turn('x'.repeat(1500), { parentId: first.id, inputTokens: 30, costNanoUsd: 2_000_000 })
  const running = await story.begin('and now', second.id)
  const { turns, ...rest } = await timelines.page(orgId, session.id, { limit: 20 })
  assert.deepEqual(rest, {})
  assert.deepEqual(
    turns.map(({ turn, message, usage, point }) => [turn.messageId, message, usage.inputTokens, point?.checkpointId]),
    [
      [running, 'and now', 0, undefined],
      [second.id, 'x'.repeat(1000), 30, second.checkpointId],
      [first.id, 'a page', 10, first.checkpointId],
    ],
  )
  const [now, , oldest] = turns
  assert.equal(now?.turn.endedAt, undefined)
  assert.deepEqual(oldest?.usage, {
    inputTokens: 10,
    cacheReadTokens: 0,
    cacheWriteTokens: 0,
    outputTokens: 2,
    costUsd: 0.001,
  })
  assert.deepEqual([oldest.turn.subtype, oldest.turn.preview, oldest.turn.firstEvent], ['success', 'ready', 1])
  assert.deepEqual([oldest.point?.kind, oldest.point?.sizeBytes, oldest.point?.durationMs], ['full', 1000, 5])
})

test('timeline: the usage of a turn ends where the next one begins, though that was left', async () => {
  const first = await story.turn('a', { inputTokens: 1 })
  await story.turn('b', { parentId: first.id, inputTokens: 20 })
  const undo = await story.rewind({ turnId: first.id, checkpointId: first.checkpointId })
  const third = await story.turn('c', { parentId: first.id, inputTokens: 300 })
  const { turns, undoCheckpointId } = await timelines.page(orgId, session.id, { limit: 20 })
  assert.equal(undoCheckpointId, undo)
  assert.deepEqual(
    turns.map(({ turn, usage }) => [turn.messageId, usage.inputTokens]),
    [
      [third.id, 300],
      [first.id, 1],
    ],
  )
  const all = await timelines.page(orgId, session.id, { limit: 20, branch: 'all' })
  assert.deepEqual(
    all.turns.map(({ message, usage, turn }) => [message, usage.inputTokens, turn.leftEvent]),
    [
      ['c', 300, undefined],
      ['b', 20, 5],
      ['a', 1, undefined],
    ],
  )
})

test('timeline: pages follow one another by cursor, and another text is refused', async () => {
  let parentId: string | undefined
  for (const content of ['a', 'b', 'c', 'd', 'e'])
    parentId = (await story.turn(content, parentId === undefined ? {} : { parentId })).id
  const seen: string[] = []
  let cursor: string | undefined
  do {
    const page = await timelines.page(orgId, session.id, { limit: 2, ...(cursor === undefined ? {} : { cursor }) })
    seen.push(page.turns.map(({ message, usage }) => `${message}${usage.inputTokens}`).join())
    cursor = page.nextCursor
  } while (cursor !== undefined)
  assert.deepEqual(seen, ['e10,d10', 'c10,b10', 'a10'])
  for (const bad of ['', 'x', 'msg_unknown00000', 'a\0b'])
    await assert.rejects(timelines.page(orgId, session.id, { limit: 2, cursor: bad }), refused('invalid_request'))
})

test('timeline: the cost of a turn is absent while it is not known', async () => {
  const first = await story.turn('a', { costNanoUsd: undefined })
  await story.turn('b', { parentId: first.id })
  const { turns } = await timelines.page(orgId, session.id, { limit: 20 })
  assert.deepEqual(
    turns.map(({ usage }) => usage.costUsd),
    [undefined, undefined],
  )
})

test('timeline: forks stand at their turn, at most twenty, without those of others for an owner', async () => {
  const first = await story.turn('a')
  const second = await story.turn('b', { parentId: first.id })
  const fork = (fields: Partial<Session>) => insertSession(store, { forkedFrom: session.id, ...fields })
  const own = await fork({ forkPoint: first.id, name: 'blue', archivedFor: 'session_x was adopted' })
  const others = await fork({ forkPoint: first.id, userId: 'u2', keyId: 'key_other' })
  const many = await Promise.all(Array.from({ length: 21 }, () => fork({ forkPoint: second.id })))
  const { turns } = await timelines.page(orgId, session.id, { limit: 20 })
  const [newest, oldest] = turns
  assert.deepEqual([newest?.forks.length, newest?.isForksCut], [20, true])
  assert.ok(newest?.forks.every(({ id }) => many.some((one) => one.id === id)))
  assert.deepEqual(oldest?.forks.map(({ id }) => id).toSorted(), [own.id, others.id].toSorted())
  assert.equal(oldest.isForksCut, false)
  const ofOwner = await timelines.page(orgId, session.id, { limit: 20, isOwnersOnly: true })
  assert.deepEqual(
    ofOwner.turns[1]?.forks.map(({ id, name, archivedFor }) => [id, name, archivedFor]),
    [[own.id, 'blue', 'session_x was adopted']],
  )
  const reach = { namePrefix: 'bl', keyId: 'key_1' }
  const reached = await timelines.page(orgId, session.id, { limit: 20, reach })
  assert.deepEqual(
    reached.turns.map(({ forks }) => forks.map(({ id }) => id)),
    [[], [own.id]],
  )
})

test('timeline: a stranger finds no session', async () => {
  await assert.rejects(timelines.page('org_2', session.id, { limit: 20 }), refused('not_found'))
  await assert.rejects(timelines.page(orgId, session.id, { limit: 20, userId: 'u2' }), refused('not_found'))
  assert.deepEqual(await timelines.page(orgId, session.id, { limit: 20, userId: 'u1' }), { turns: [] })
})
