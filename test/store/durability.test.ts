import assert from 'node:assert/strict'
import { createInterface } from 'node:readline'
import { after, before, suite, test } from 'node:test'
import { Creation } from '../../src/lib/creation.ts'
import type { StreamEvent } from '../../src/session/index.ts'
import { openStore, type Store } from '../../src/store/index.ts'
import { killed, startChild } from './child.ts'
import { eventOf, freshDatabase, newOrganisation, newSession, sessionOf } from './kit.ts'

suite('durability of a database', () => {
  let url: string
  let drop: () => Promise<void>
  before(async () => ({ url, drop } = await freshDatabase()))
  after(() => drop())

  /** Lets a writer run until it has acknowledged so many commits, kills it in the middle of the next, and returns all. */
  async function acknowledgedBefore(kill: number, sessionId: string): Promise<string[]> {
    const child = startChild('write', url, sessionId)
    const acknowledged: string[] = []
    for await (const line of createInterface({ input: child.stdout })) {
      acknowledged.push(line)
      if (acknowledged.length === kill) child.kill('SIGKILL')
    }
    await killed(child)
    assert.equal(child.signalCode, 'SIGKILL')
    return acknowledged
  }

  async function wholeStream(store: Store, sessionId: string): Promise<StreamEvent[]> {
    const stream: StreamEvent[] = []
    for (;;) {
      const page = await store.sessions.stream(sessionId, stream.length, 10_000)
      if (page.length === 0) return stream
      stream.push(...page)
    }
  }

  test('commit: every acknowledged one survives kill -9, in several rounds', async () => {
    let store = await openStore(url)
    const { id: sessionId } = await newSession(store, (await newOrganisation(store)).id)
    const acknowledged: string[] = []
    for (const commits of [1, 60, 137]) {
      await store.close()
      acknowledged.push(...(await acknowledgedBefore(commits, sessionId)))
      store = await openStore(url)
      const stream = await wholeStream(store, sessionId)
      const messages = new Set((await store.sessions.messages(sessionId)).map(({ id }) => id))
      const sequences = new Set(stream.map(({ sequence }) => sequence))
      for (const line of acknowledged) {
        const [sequence, messageId] = line.split(' ')
        assert.ok(sequences.has(Number(sequence)), `event ${sequence} is gone`)
        assert.ok(messages.has(String(messageId)), `message ${messageId} is gone`)
      }
      // What was not acknowledged is there whole or not at all, and the numbers stay dense.
      assert.equal(messages.size - 1, stream.length)
      assert.equal(stream.at(-1)?.sequence, stream.length)
      assert.equal(await store.sessions.lastSequence(sessionId), stream.length)
    }
    await store.close()
  })

  test('idempotency: the records of a key are known after a restart', async () => {
    let store = await openStore(url)
    const { id: orgId } = await newOrganisation(store)
    const now = new Date()
    const claim = (key: string, seed = 'seed') => ({ orgId, key, seed })
    await store.idempotency.begin(claim('interrupted'), 'hash', now)
    const session = sessionOf(orgId)
    const creation = new Creation(claim('interrupted'), [], 'opened')
    await store.sessions.createSession(session, [], eventOf(''), { creation })
    await store.idempotency.begin(claim('done'), 'hash', now)
    await store.idempotency.finish(claim('done'), 'hash', now, { statusCode: 201, body: 'x' })
    await store.close()
    store = await openStore(url)
    const again = await store.idempotency.begin(claim('interrupted', 'other'), 'hash', now)
    assert.deepEqual(again, { state: 'claimed', seed: 'seed', made: [session.id] })
    const state = await store.idempotency.begin(claim('done'), 'hash', now)
    assert.deepEqual(state, { state: 'done', statusCode: 201, body: 'x' })
    await store.close()
  })
})
