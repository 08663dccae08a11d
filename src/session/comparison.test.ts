import assert from 'node:assert/strict'
import { beforeEach, test } from 'node:test'
import { ServiceError } from '../errors.ts'
import type { CompareOptions, DiskRef, SandboxService, TreeComparison } from '../sandbox/index.ts'
import { Comparisons } from './comparison.ts'
import { Ownership } from './ownership.ts'
import type { Session } from './session.ts'
import type { SessionConfig } from './config.ts'
import { emptySessionStore, insertSession, orgId } from './testing/store.ts'
import { Story } from './testing/turns.ts'
import { refused } from './testing/world.ts'

const changed: TreeComparison = {
  files: [{ path: 'a', change: 'added', isBinary: false, addedLines: 1, removedLines: 0 }],
  addedLines: 1,
  removedLines: 0,
  isCut: false,
}

let store = emptySessionStore()
let comparisons: Comparisons
let session: Session
let story: Story
/** What was compared. */
let asked: { from: DiskRef; to: DiskRef; options: CompareOptions } | undefined

function comparisonsWith(hasTrees = true): Comparisons {
  const sandboxes = {
    previews: { hostname: (sandboxId: string, port: number) => `${sandboxId}-p${port}.preview.test` },
    checkpoints: {
      get: async (of: string, id: string) => {
        if (of !== orgId || id !== 'cp-other') throw new ServiceError('not_found', `no checkpoint ${id}`)
        return { checkpoint: { id, sandboxId: 'sb-named' } }
      },
    },
    get: async () => ({ id: 'sb-named', name: 'ci-1' }),
    trees: hasTrees
      ? {
          compareDisks: async (_orgId: string, from: DiskRef, to: DiskRef, options: CompareOptions) => {
            asked = { from, to, options }
            return changed
          },
          patchDisks: async function* (_orgId: string, from: DiskRef, to: DiskRef, options: CompareOptions) {
            asked = { from, to, options }
            yield Buffer.from('diff --git a/a b/a\n')
          },
        }
      : undefined,
  } as unknown as SandboxService
  const config = { previewUrl: (hostname: string) => `http://${hostname}` } as SessionConfig
  return new Comparisons({ store, sandboxes, config, ownership: new Ownership(store) })
}

beforeEach(async () => {
  store = emptySessionStore()
  comparisons = comparisonsWith()
  session = await insertSession(store)
  story = new Story(store, session.id)
  asked = undefined
})

test('comparison: another session is compared as both stand, with what each has taken', async () => {
  await story.turn('a page', { inputTokens: 10 })
  const other = await insertSession(store, { name: 'blue' })
  await new Story(store, other.id).turn('blue', { inputTokens: 7, costNanoUsd: undefined })
  const { own, other: others, ...rest } = await comparisons.compare(orgId, session.id, { against: other.id })
  assert.deepEqual(rest, { ...changed, against: { type: 'session', id: other.id }, folder: '/workspace/app' })
  assert.deepEqual(
    [asked?.from, asked?.to, asked?.options.folder],
    [{ sandboxId: other.sandboxId }, { sandboxId: session.sandboxId }, '/workspace/app'],
  )
  assert.deepEqual([own.usage.inputTokens, own.usage.costUsd, own.preview], [10, 0.001, 'ready'])
  assert.deepEqual([others?.usage.inputTokens, others?.usage.costUsd], [7, undefined])
  assert.equal(others?.previewUrl, `http://${other.sandboxId}-p3000.preview.test`)
  assert.equal(typeof own.durationMs, 'number')
  const named = await comparisons.compare(orgId, session.id, { against: 'blue' })
  assert.deepEqual(named.against, { type: 'session', id: other.id })
})

test('comparison: a message stands for the end of its turn, a checkpoint for itself', async () => {
  const first = await story.turn('a', { inputTokens: 3 })
  await story.turn('b', { parentId: first.id, inputTokens: 40 })
  const ofTurn = await comparisons.compare(orgId, session.id, { against: first.id })
  assert.deepEqual(ofTurn.against, { type: 'message', id: first.id })
  assert.deepEqual(asked?.from, { checkpointId: first.checkpointId })
  assert.deepEqual([ofTurn.other?.usage.inputTokens, ofTurn.other?.preview], [3, 'ready'])
  assert.equal(ofTurn.other?.previewUrl, undefined)
  const ofPoint = await comparisons.compare(orgId, session.id, { against: first.checkpointId })
  assert.deepEqual(ofPoint.against, { type: 'checkpoint', id: first.checkpointId })
  assert.equal(ofPoint.other?.usage.inputTokens, 3)
  const ofOther = await comparisons.compare(orgId, session.id, { against: 'cp-other' })
  assert.deepEqual([asked?.from, ofOther.other], [{ checkpointId: 'cp-other' }, undefined])
})

test('comparison: a session that has ended is compared as its newest checkpoint', async () => {
  const first = await story.turn('a')
  const second = await story.turn('b', { parentId: first.id })
  await store.commit(session.id, { session: { status: 'ended' } })
  await comparisons.compare(orgId, session.id, { against: first.id })
  assert.deepEqual(asked?.to, { checkpointId: second.checkpointId })
  const bare = await insertSession(store, { status: 'ended' })
  await assert.rejects(comparisons.compare(orgId, session.id, { against: bare.id }), refused('not_found'))
})

test('comparison: a session that has ended after a rewind is compared as where that led', async () => {
  const first = await story.turn('a')
  await story.turn('b', { parentId: first.id })
  const to = { turnId: first.id, checkpointId: first.checkpointId }
  await story.rewind(to)
  await store.commit(session.id, { session: { status: 'ended' } })
  await comparisons.compare(orgId, session.id, { against: first.id })
  assert.deepEqual(asked?.to, { checkpointId: first.checkpointId })
  // The conversation alone: the disk stays as it was.
  const undo = await story.rewind(to, 'conversation')
  await comparisons.compare(orgId, session.id, { against: first.id })
  assert.deepEqual(asked?.to, { checkpointId: undo })
})

test('comparison: what is unknown, of somebody else or beyond the key is not found', async () => {
  const strange = await insertSession(store, { orgId: 'org_2' })
  const others = await insertSession(store, { userId: 'u2', name: 'web' })
  const bad = ['session_unknown00000', 'cp-unknown', 'msg_unknown00000', 'nothing', 'a\0b', 'cp-\0', strange.id]
  for (const against of bad)
    await assert.rejects(comparisons.compare(orgId, session.id, { against }), refused('not_found'), against)
  const ofUser = { userId: 'u1', against: others.id }
  await assert.rejects(comparisons.compare(orgId, session.id, ofUser), refused('not_found'))
  await comparisons.compare(orgId, session.id, { against: others.id })
  const reach = { namePrefix: 'ci-', keyId: 'key_1' }
  await assert.rejects(comparisons.compare(orgId, session.id, { against: others.id, reach }), refused('not_found'))
  await comparisons.compare(orgId, session.id, { against: 'cp-other', reach })
  const elsewhere = { namePrefix: 'dev-', keyId: 'key_1' }
  const beyond = { against: 'cp-other', reach: elsewhere }
  await assert.rejects(comparisons.compare(orgId, session.id, beyond), refused('not_found'))
  await assert.rejects(comparisons.compare('org_2', session.id, { against: session.id }), refused('not_found'))
})

test('comparison: a turn that runs has no end to be compared', async () => {
  const running = await story.begin('a')
  await assert.rejects(comparisons.compare(orgId, session.id, { against: running }), refused('conflict'))
})

test('comparison: a patch is of the same disks', async () => {
  const first = await story.turn('a')
  const { signal } = new AbortController()
  const parts = await Array.fromAsync(comparisons.patch(orgId, session.id, { against: first.id, signal }))
  assert.equal(Buffer.concat(parts).toString(), 'diff --git a/a b/a\n')
  assert.deepEqual(
    [asked?.from, asked?.to, asked?.options.signal === signal],
    [{ checkpointId: first.checkpointId }, { sandboxId: session.sandboxId }, true],
  )
})

test('comparison: a runtime that cannot read disks is named', async () => {
  const without = comparisonsWith(false)
  await assert.rejects(without.compare(orgId, session.id, { against: session.id }), refused('not_implemented'))
  await assert.rejects(without.patch(orgId, session.id, { against: session.id }).next(), refused('not_implemented'))
})
