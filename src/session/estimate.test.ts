import assert from 'node:assert/strict'
import { beforeEach, test } from 'node:test'
import { ServiceError } from '../errors.ts'
import type { SandboxService } from '../sandbox/index.ts'
import { Estimates } from './estimate.ts'
import { Ownership } from './ownership.ts'
import type { Session } from './session.ts'
import { emptySessionStore, insertSession, orgId } from './testing/store.ts'
import { Story } from './testing/turns.ts'
import { refused } from './testing/world.ts'

const mebibyte = 1024 * 1024

let store = emptySessionStore()
let session: Session
let story: Story

interface Machine {
  /** Of the running sandbox. Default: it sleeps. */
  memoryBytes?: number
  isLost?: boolean
  uniqueBytes?: Record<string, number>
  sessionsMax?: number
}

function estimatesOf({ memoryBytes, isLost, uniqueBytes, sessionsMax = Infinity }: Machine = {}): Estimates {
  const sandboxes = {
    get: async (_orgId: string, id: string) => {
      if (isLost) throw new ServiceError('not_found', `no sandbox ${id}`)
      return { id, memoryMb: 1024 }
    },
    usage: { readRecent: async () => ({ now: memoryBytes && { memoryBytes }, samples: [] }) },
    trees: uniqueBytes && { uniqueBytes: async (_orgId: string, id: string) => uniqueBytes[id] },
  } as unknown as SandboxService
  return new Estimates({ store, sandboxes, sessionsMaxOf: () => sessionsMax, ownership: new Ownership(store) })
}

beforeEach(async () => {
  store = emptySessionStore()
  session = await insertSession(store)
  story = new Story(store, session.id)
})

test('estimate: forks take one checkpoint together, and memory each', async () => {
  const first = await story.turn('a', { inputTokens: 10, costNanoUsd: 1_000_000 })
  const second = await story.turn('b', { parentId: first.id, inputTokens: 21, costNanoUsd: 2_000_000, isSaved: false })
  const createdAt = new Date(Date.now() - 70_000)
  const checkpointId = await story.point({ turnId: second.id, createdAt })
  const estimates = estimatesOf({
    memoryBytes: 100,
    uniqueBytes: { [checkpointId]: 700 },
    sessionsMax: 5,
  })
  assert.deepEqual(await estimates.forks(orgId, session.id, { count: 3 }), {
    fork: 3,
    diskBytes: 700,
    checkpointBytes: 1000,
    memoryBytes: { now: 300, max: 3 * 1024 * mebibyte },
    turns: 2,
    tokensPerTurn: { input: 16, output: 2 },
    costPerTurnUsd: 0.0015,
    sessionsLeft: 4,
  })
})

test('estimate: a checkpoint that is not counted, or not yet, counts as a whole', async () => {
  const { checkpointId } = await story.turn('a')
  for (const uniqueBytes of [{ [checkpointId]: 700 }, {}, undefined]) {
    const estimates = estimatesOf(uniqueBytes === undefined ? {} : { uniqueBytes })
    const { diskBytes, checkpointBytes } = await estimates.forks(orgId, session.id, { count: 3 })
    assert.deepEqual([diskBytes, checkpointBytes], [1000, 1000])
  }
})

test('estimate: what is not measured is absent', async () => {
  const estimate = await estimatesOf().forks(orgId, session.id, { count: 2 })
  assert.deepEqual(estimate, { fork: 2, memoryBytes: { max: 2 * 1024 * mebibyte }, turns: 0 })
  const lost = await estimatesOf({ isLost: true }).forks(orgId, session.id, { count: 1 })
  assert.deepEqual(lost.memoryBytes, {})
})

test('estimate: turns without a known cost are not in its mean, and one that runs is in none', async () => {
  const first = await story.turn('a', { inputTokens: 10, costNanoUsd: 3_000_000 })
  const second = await story.turn('b', { parentId: first.id, inputTokens: 10, costNanoUsd: undefined })
  const running = await story.begin('c', second.id)
  await store.commit(session.id, {
    usage: { inputTokens: 500, cacheReadTokens: 0, cacheWriteTokens: 0, outputTokens: 0, costNanoUsd: undefined },
  })
  const { turns, costPerTurnUsd, tokensPerTurn } = await estimatesOf().forks(orgId, session.id, { count: 1 })
  assert.deepEqual([turns, costPerTurnUsd, tokensPerTurn?.input], [2, 0.003, 10])
  await story.end(running, { inputTokens: 0, costNanoUsd: undefined })
  assert.equal((await estimatesOf().forks(orgId, session.id, { count: 1 })).tokensPerTurn?.input, 173)
})

test('estimate: a stranger finds no session', async () => {
  const estimates = estimatesOf()
  await assert.rejects(estimates.forks('org_2', session.id, { count: 1 }), refused('not_found'))
  await assert.rejects(estimates.forks(orgId, session.id, { count: 1, userId: 'u2' }), refused('not_found'))
})
