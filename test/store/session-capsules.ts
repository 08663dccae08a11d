import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { newId } from '../../src/lib/id.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { sha256 } from '../../src/lib/secret.ts'
import type { NewCapsule } from '../../src/session/capsule-store.ts'
import type { Store } from '../../src/store/index.ts'
import { newOrganisation, newSession } from './kit.ts'

const hourMs = 3_600_000

export function sessionCapsuleTests(store: Store): void {
  const { capsules, sessions } = store

  function capsuleOf({ id: sessionId, orgId }: { id: string; orgId: string }, fields: Partial<NewCapsule> = {}) {
    const createdAt = new Date()
    const expiresAt = new Date(createdAt.getTime() + hourMs)
    const id = newId('mom_')
    const capsule = {
      id,
      orgId,
      sessionId,
      scope: 'read',
      event: 3,
      createdAt,
      expiresAt,
      tokenHash: sha256(id),
    } as const
    return { ...capsule, ...fields }
  }

  async function insert(session: { id: string; orgId: string }, fields: Partial<NewCapsule> = {}) {
    const capsule = capsuleOf(session, fields)
    await capsules.insert(capsule, { livingMax: 3 })
    return capsule
  }

  async function made() {
    return await newSession(store, (await newOrganisation(store)).id)
  }

  const inAnHour = () => new Date(Date.now() + 2 * hourMs)

  suite('capsules of sessions', () => {
    test('capsule: it is found by its token and listed while it lives, newest first', async () => {
      const session = await made()
      const first = await insert(session, { createdAt: new Date(Date.now() - 1000) })
      const second = await insert(session, { scope: 'fork', checkpointId: 'cp-1' })
      const { tokenHash, ...rest } = second
      assert.deepEqual(await capsules.living(tokenHash, new Date()), { ...rest, forks: 0 })
      assert.equal(await capsules.living(tokenHash, inAnHour()), undefined)
      const ids = async (now: Date) => (await capsules.list(session.id, now)).map(({ id }) => id)
      assert.deepEqual(await ids(new Date()), [second.id, first.id])
      assert.deepEqual(await ids(inAnHour()), [])
      assert.equal((await capsules.find(session.id, first.id))?.id, first.id)
      assert.equal(await capsules.find((await made()).id, first.id), undefined)
    })

    test('capsule: one that is revoked does not live, and a repeat changes nothing', async () => {
      const session = await made()
      const { id, tokenHash } = await insert(session)
      const now = new Date()
      assert.deepEqual((await capsules.revoke(session.id, id, now))?.revokedAt, now)
      assert.deepEqual((await capsules.revoke(session.id, id, inAnHour()))?.revokedAt, now)
      assert.equal(await capsules.living(tokenHash, new Date()), undefined)
      assert.equal(await capsules.revoke((await made()).id, id, now), undefined)
    })

    test('capsule: so many of clients live at a time, also when they are made at once', async () => {
      const session = await made()
      const all = await Promise.allSettled(Array.from({ length: 6 }, () => insert(session)))
      assert.equal(all.filter(({ status }) => status === 'fulfilled').length, 3)
      await refuses(insert(session), 'conflict', /3 capsules/)
      const [first] = await capsules.list(session.id, new Date())
      await capsules.revoke(session.id, first!.id, new Date())
      await insert(session)
      await insert(await made())
    })

    test('capsule: of those that a session makes itself the newest stay', async () => {
      const session = await made()
      const own = Array.from({ length: 5 }, (_, index) =>
        capsuleOf(session, { reason: 'error', createdAt: new Date(Date.now() + index) }),
      )
      const other = await insert(session, { createdAt: new Date(Date.now() - hourMs) })
      for (const capsule of own) await capsules.insertOwn(capsule, 2)
      const kept = (await capsules.list(session.id, new Date())).map(({ id }) => id)
      assert.deepEqual(kept, [own[4]!.id, own[3]!.id, other.id])
    })

    test('capsule: its forks are counted up to a number, however many come at once', async () => {
      const { id } = await insert(await made(), { scope: 'fork' })
      const counted = await Promise.all(Array.from({ length: 6 }, () => capsules.addFork(id, new Date(), 4)))
      assert.equal(counted.filter(Boolean).length, 4)
      await capsules.removeFork(id)
      assert.equal(await capsules.addFork(id, new Date(), 4), true)
      assert.equal(await capsules.addFork(id, new Date(), 4), false)
      assert.equal(await capsules.addFork(id, inAnHour(), 100), false)
    })

    test('capsule: a checkpoint is needed while one that names it lives', async () => {
      const session = await made()
      const checkpointId = newId('cp-')
      const { id } = await insert(session, { scope: 'fork', checkpointId })
      const needed = async (now: Date) => [...(await capsules.neededCheckpoints([checkpointId, 'cp-none'], now))]
      assert.deepEqual(await needed(new Date()), [checkpointId])
      assert.deepEqual(await needed(inAnHour()), [])
      await capsules.revoke(session.id, id, new Date())
      assert.deepEqual(await needed(new Date()), [])
    })

    test('capsule: those that are over are deleted, a few at a time', async () => {
      const session = await made()
      const past = new Date(Date.now() - hourMs)
      const long = new Date('2001-01-01')
      for (let index = 0; index < 2; index += 1) await insert(session, { expiresAt: past })
      const revoked = await insert(session)
      await capsules.revoke(session.id, revoked.id, new Date('2000-01-01'))
      const living = await insert(session)
      let deleted = 0
      for (;;) {
        const some = await capsules.deleteOver({ expiredBy: new Date(), revokedBy: long }, 2)
        deleted += some.filter(({ sessionId }) => sessionId === session.id).length
        if (some.length < 2) break
      }
      assert.equal(deleted, 3)
      assert.equal(await capsules.find(session.id, revoked.id), undefined)
      assert.equal((await capsules.find(session.id, living.id))?.id, living.id)
    })

    test('capsule: it goes with its session, and none is made of one that is gone', async () => {
      const session = await made()
      const { id, tokenHash } = await insert(session)
      await sessions.deleteSessions([session.id])
      assert.equal(await capsules.find(session.id, id), undefined)
      assert.equal(await capsules.living(tokenHash, new Date()), undefined)
      await refuses(insert(session), 'not_found', /no session/)
      await refuses(capsules.insertOwn(capsuleOf(session), 2), 'not_found', /no session/)
    })

    test('capsule: two have neither an id nor a token in common', async () => {
      const session = await made()
      const { id, tokenHash } = await insert(session)
      await refuses(insert(session, { id }), 'conflict', /id exists/)
      await refuses(insert(session, { tokenHash }), 'conflict', /token exists/)
    })
  })
}
