import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { isServiceError } from '../../src/errors.ts'
import { type Claim, Creation, type StoredResponse } from '../../src/lib/creation.ts'
import { newId } from '../../src/lib/id.ts'
import type { Store } from '../../src/store/index.ts'
import {
  checkpointOf,
  eventOf,
  messageOf,
  newOrganisation,
  newSession,
  patchOf,
  previewOf,
  sandboxOf,
  sessionOf,
  previewUrl,
} from './kit.ts'

const now = new Date('2026-01-15T10:30:00.000Z')
const later = (minutes: number) => new Date(now.getTime() + minutes * 60_000)
const made = (claim: Claim, ...ids: string[]) => ({ state: 'claimed', seed: claim.seed, made: ids })
const isConflict = (error: unknown) => isServiceError(error, 'conflict')

export function idempotencyTests(store: Store): void {
  const { sandboxes, sessions, idempotency } = store

  const newClaim = async (): Promise<Claim> => {
    return { orgId: (await newOrganisation(store)).id, key: newId('key_'), seed: 'seed' }
  }
  const begin = (claim: Claim, hash = 'hash', at = now) => idempotency.begin(claim, hash, at)

  const finish = (claim: Claim, response: StoredResponse, hash = 'hash') =>
    idempotency.finish(claim, hash, now, response)

  suite('idempotency keys', () => {
    test('idempotency key: it is claimed, then done with its response', async () => {
      const claim = await newClaim()
      assert.deepEqual(await begin(claim), made(claim))
      const response = { statusCode: 201, body: '{"id":"sb-1"}\n', headers: { 'x-next-cursor': 'é' } }
      await finish(claim, response)
      assert.deepEqual(await begin(claim, 'hash', later(1)), { state: 'done', ...response })
    })

    test('idempotency key: a response without headers or body is replayed unchanged', async () => {
      const claim = await newClaim()
      await begin(claim)
      await finish(claim, { statusCode: 204, body: '' })
      assert.deepEqual(await begin(claim), { state: 'done', statusCode: 204, body: '' })
    })

    test('idempotency key: an unanswered request is claimed again with the first seed', async () => {
      const claim = await newClaim()
      await begin(claim)
      assert.deepEqual(await begin({ ...claim, seed: 'another' }), made(claim))
    })

    test('idempotency key: another request is a conflict, before and after the answer', async () => {
      const claim = await newClaim()
      await begin(claim)
      assert.deepEqual(await begin(claim, 'other'), { state: 'conflict' })
      await finish(claim, { statusCode: 201, body: '' })
      assert.deepEqual(await begin(claim, 'other'), { state: 'conflict' })
    })

    test('idempotency key: organisations have separate keys', async () => {
      const claim = await newClaim()
      await begin(claim)
      const other = { ...(await newClaim()), key: claim.key, seed: 'theirs' }
      assert.deepEqual(await begin(other, 'other'), made(other))
    })

    test('idempotency key: an abandoned one is free again, and a finished one is not abandoned', async () => {
      const claim = await newClaim()
      await begin(claim)
      await idempotency.abandon(claim)
      const next = { ...claim, seed: 'next' }
      assert.deepEqual(await begin(next, 'other'), made(next))
      await idempotency.abandon(claim)
      assert.deepEqual(await begin(next, 'other'), made(next), 'nor is the next life of the key')
      await finish(next, { statusCode: 200, body: 'x' })
      await idempotency.abandon(next)
      assert.equal((await begin(next, 'other')).state, 'done')
    })

    test('idempotency key: an entry expires after a day, answered or not, and the next life is empty', async () => {
      const day = 24 * 60
      for (const isAnswered of [true, false]) {
        const claim = await newClaim()
        await begin(claim)
        await sessions.createSession(sessionOf(claim.orgId), [], eventOf(''), { creation: creationOf(claim) })
        if (isAnswered) await finish(claim, { statusCode: 200, body: 'x' })
        assert.equal((await begin(claim, 'hash', later(day - 1))).state, isAnswered ? 'done' : 'claimed')
        const next = { ...claim, seed: 'next' }
        assert.deepEqual(await begin(next, 'other', later(day + 1)), made(next))
        assert.deepEqual(await begin(claim, 'other', later(day + 1)), made(next))
        await finish(claim, { statusCode: 200, body: 'late' })
        assert.deepEqual(await begin(next, 'other', later(day + 1)), made(next), 'what is late answers nobody else')
      }
    })

    test('idempotency key: concurrent requests get one seed', async () => {
      const claim = await newClaim()
      const seeds = Array.from({ length: 20 }, (_, index) => `seed ${index}`)
      const states = await Promise.all(seeds.map((seed) => begin({ ...claim, seed })))
      assert.equal(new Set(states.map((state) => state.state === 'claimed' && state.seed)).size, 1)
    })

    test('idempotency key: an abandon without an entry does nothing, and the response of an undone request is kept', async () => {
      const claim = await newClaim()
      await idempotency.abandon(claim)
      await begin(claim)
      await idempotency.abandon(claim)
      await finish(claim, { statusCode: 404, body: 'x' })
      assert.deepEqual(await begin(claim), { state: 'done', statusCode: 404, body: 'x' })
      assert.deepEqual(await begin(claim, 'other'), { state: 'conflict' })
    })

    test('idempotency key: a purge deletes the entries begun before the moment', async () => {
      const [old, young] = [await newClaim(), await newClaim()]
      await begin(old, 'hash', new Date('2001-01-01'))
      await begin(young)
      assert.equal(await idempotency.purge(new Date('2001-01-02')), 1)
      assert.equal(await idempotency.purge(new Date('2001-01-02')), 0)
      assert.deepEqual(await begin({ ...young, seed: 'another' }), made(young))
    })
  })

  suite('what a request makes under its key', () => {
    /** Makes one of each kind; returns its id. */
    const kinds: Record<string, (orgId: string, creation: Creation) => Promise<string>> = {
      async session(orgId, creation) {
        const session = sessionOf(orgId)
        await sessions.createSession(session, [messageOf('hello')], eventOf(''), { creation })
        return session.id
      },
      async message(orgId, creation) {
        const session = await newSession(store, orgId)
        const message = messageOf('hello')
        await sessions.commit(session.id, { addMessages: [message], made: { creation, id: message.id } })
        return message.id
      },
      async sandbox(orgId, creation) {
        const sandbox = sandboxOf(orgId, { status: 'creating' })
        await sandboxes.insertSandbox(sandbox)
        const creationNote = { creation, outcome: 'made' } as const
        await sandboxes.updateSandbox(sandbox.id, { status: 'running' }, ['creating'], { creationNote })
        return sandbox.id
      },
      async checkpoint(orgId, creation) {
        const checkpoint = checkpointOf(sandboxOf(orgId))
        await sandboxes.insertCheckpoint(checkpoint, creation)
        return checkpoint.id
      },
      async patch(orgId, creation) {
        const checkpoint = checkpointOf(sandboxOf(orgId))
        await sandboxes.insertCheckpoint(checkpoint)
        return (await sandboxes.insertPatch(patchOf(checkpoint.id), creation)).id
      },
      async preview(orgId, creation) {
        const sandbox = sandboxOf(orgId)
        await sandboxes.insertSandbox(sandbox)
        return (await sandboxes.putPreview(previewOf(sandbox, 80), previewUrl, creation)).preview.id
      },
    }

    test('created record: its id is in the entry of the key, survives failures, and is created once', async () => {
      for (const [kind, make] of Object.entries(kinds)) {
        const claim = await newClaim()
        await begin(claim)
        const id = await make(claim.orgId, creationOf(claim))
        assert.deepEqual(await begin(claim), made(claim, id), kind)
        await idempotency.abandon(claim)
        await assert.rejects(make(claim.orgId, creationOf(claim)), isConflict, kind)
        assert.deepEqual(await begin(claim), made(claim, id), kind)
      }
    })

    test('created record: a failed creation is not in the entry, and a second creation leaves nothing', async () => {
      const claim = await newClaim()
      await begin(claim)
      const session = await newSession(store, claim.orgId)
      const again = sessions.createSession(session, [], eventOf(''), { creation: creationOf(claim) })
      await assert.rejects(again, isConflict)
      assert.deepEqual(await begin(claim), made(claim))
      const commit = (text: string) => {
        const message = messageOf(text)
        const change = { addMessages: [message], made: { creation: creationOf(claim), id: message.id } }
        return sessions.commit(session.id, change)
      }
      await commit('once')
      await assert.rejects(commit('twice'), isConflict)
      const texts = (await sessions.messages(session.id)).map(({ content }) => content)
      assert.deepEqual(texts.slice(-1), ['once'])
      assert.equal(await sessions.commit(session.id, { when: 'ended', addMessages: [] }), undefined)
    })

    test('created record: an expired life of the key creates nothing', async () => {
      const claim = await newClaim()
      await begin(claim)
      const day = 24 * 60
      await begin({ ...claim, seed: 'next' }, 'other', later(day + 1))
      for (const [kind, make] of Object.entries(kinds)) {
        await assert.rejects(make(claim.orgId, creationOf(claim)), isConflict, kind)
      }
    })

    test('created record: an undone sandbox frees the key; one of several is only removed from the list', async () => {
      const claim = await newClaim()
      await begin(claim)
      const whole = creationOf(claim)
      const stop = (id: string, creation: Creation) =>
        sandboxes.updateSandbox(id, { status: 'stopped' }, ['running'], {
          creationNote: { creation, outcome: 'undone' },
        })
      await stop(await kinds['sandbox']!(claim.orgId, whole), whole)
      const next = { ...claim, seed: 'next' }
      assert.deepEqual(await begin(next, 'other'), made(next))

      const parts = [0, 1, 2].map((index) => creationOf(next).part(index))
      const ids = await Promise.all(parts.map((part) => kinds['sandbox']!(claim.orgId, part)))
      await stop(ids[1]!, parts[1]!)
      const state = await begin(next, 'other')
      assert.equal(state.state, 'claimed')
      assert.deepEqual(state.state === 'claimed' && state.made.toSorted(), [ids[0]!, ids[2]!].toSorted())
      assert.equal(await stop(ids[1]!, parts[1]!), undefined, 'a change that does not come about is none here either')
    })
  })
}

function creationOf(claim: Claim): Creation {
  return new Creation(claim, [], claim.seed)
}
