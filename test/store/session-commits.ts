import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { isServiceError } from '../../src/errors.ts'
import { newId } from '../../src/lib/id.ts'
import type { SessionChange } from '../../src/session/store.ts'
import type { Store } from '../../src/store/index.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { eventOf, idsOf, messageOf, newOrganisation, newSession } from './kit.ts'

export function sessionCommitTests(store: Store): void {
  const { sessions } = store

  suite('commits of a session', () => {
    const newOne = async (fields = {}) => await newSession(store, (await newOrganisation(store)).id, fields)
    const sequencesOf = (stream: readonly { sequence: number }[]) => stream.map(({ sequence }) => sequence)
    const numbered = (count: number, from = 1) => Array.from({ length: count }, (_, index) => index + from)

    test('commit: all parts of a change are applied', async () => {
      const session = await newOne({ userName: 'Ada', agentProcessId: 'es-1' })
      const [first] = await sessions.messages(session.id)
      const [firstEvent] = await sessions.events(session.id)
      assert.ok(first && firstEvent)
      const messages = [messageOf('two'), messageOf('three', { role: 'assistant' })]
      const { state: _state, ...assistant } = messages[1]!
      const events = [eventOf('a', { level: 'error', type: 'session_failed' }), eventOf('b')]
      const stream = [
        { type: 'ready', harness: 'pi' },
        { type: 'assistant', message: { content: [{ text: 'é' }] } },
      ]
      const committed = await sessions.commit(session.id, {
        when: 'running',
        session: {
          activity: 'working',
          agentOffset: 77,
          interruptedMessageId: first.id,
          waitingFor: 'no_capacity',
          waitingSince: new Date('2026-03-01T12:00:00.123Z'),
          sandboxRestores: 2,
          agentProcessId: undefined,
          title: 'New',
          artifacts: [{ path: '/a', summary: 's' }],
        },
        usage: { inputTokens: 3, cacheReadTokens: 1, cacheWriteTokens: 2, outputTokens: 4, costNanoUsd: 5 },
        addMessages: [messages[0]!, assistant],
        setMessages: [{ id: first.id, state: 'started' }],
        addEvents: events,
        addStream: stream,
      })
      assert.ok(committed)
      const { agentProcessId: _cleared, agentConfig, artifacts: _replaced, ...rest } = session
      assert.deepEqual(committed.session, {
        ...rest,
        activity: 'working',
        agentOffset: 77,
        interruptedMessageId: first.id,
        waitingFor: 'no_capacity',
        waitingSince: new Date('2026-03-01T12:00:00.123Z'),
        sandboxRestores: 2,
        title: 'New',
        inputTokens: 3,
        cacheReadTokens: 1,
        cacheWriteTokens: 2,
        outputTokens: 4,
        costNanoUsd: 5,
        updatedAt: committed.session.updatedAt,
      })
      assert.ok(committed.session.updatedAt > session.updatedAt)
      const artifacts = [{ path: '/a', summary: 's' }]
      assert.deepEqual(await sessions.session(session.id), { ...committed.session, agentConfig, artifacts })
      assert.deepEqual(await sessions.messages(session.id), [{ ...first, state: 'started' }, messages[0], assistant])
      assert.deepEqual(await sessions.events(session.id), [firstEvent, ...events])
      assert.equal(committed.lastSequence, 2)
      const written = await sessions.stream(session.id, 0, 10)
      assert.deepEqual([sequencesOf(written), written.map(({ data }) => data)], [[1, 2], stream])
      assert.equal(await sessions.lastSequence(session.id), 2)
      const bytes = stream.reduce((sum, data) => sum + Buffer.byteLength(JSON.stringify(data)), 0)
      assert.equal((await sessions.head(session.id))?.streamBytes, bytes)
      const history = [first, messages[0]!, assistant, firstEvent, ...events]
      const historyBytes = history.reduce((sum, one) => sum + Buffer.byteLength(JSON.stringify(one)), 0)
      assert.equal((await sessions.historyBytes([session.id])).get(session.id), historyBytes)
    })

    test('commit: an unknown cost makes the cost of the session unknown for good', async () => {
      const session = await newOne()
      const tokens = { inputTokens: 3, cacheReadTokens: 1, cacheWriteTokens: 2, outputTokens: 4 }
      for (const [costNanoUsd, sum] of [
        [7, 7],
        [5, 12],
        [undefined, undefined],
        [5, undefined],
      ]) {
        const committed = await sessions.commit(session.id, { usage: { ...tokens, costNanoUsd } })
        assert.equal(committed?.session.costNanoUsd, sum)
      }
      const read = await sessions.session(session.id)
      assert.deepEqual([read?.inputTokens, read?.cacheWriteTokens, read?.costNanoUsd], [12, 8, undefined])
    })

    test('commit: a change for another status changes nothing', async () => {
      const session = await newOne({ status: 'ended' })
      const change: SessionChange = {
        when: 'running',
        session: { title: 'x' },
        addStream: [{ type: 'ready' }],
        addMessages: [messageOf('x')],
      }
      assert.equal(await sessions.commit(session.id, change), undefined)
      assert.deepEqual(await sessions.session(session.id), session)
      assert.equal((await sessions.messages(session.id)).length, 1)
      assert.equal(await sessions.lastSequence(session.id), 0)
    })

    test('commit: a failed change leaves nothing, and the numbers continue without a gap', async () => {
      const session = await newOne()
      const [message] = await sessions.messages(session.id)
      const [event] = await sessions.events(session.id)
      assert.ok(message && event)
      const rest: SessionChange = {
        session: { title: 'x' },
        usage: { inputTokens: 1, cacheReadTokens: 1, cacheWriteTokens: 1, outputTokens: 1, costNanoUsd: 1 },
        addStream: [{ type: 'ready' }],
      }
      const failing: SessionChange[] = [
        { ...rest, addMessages: [messageOf('fine'), message] },
        { ...rest, addMessages: [messageOf('fine')], addEvents: [event] },
        { ...rest, addMessages: [messageOf('fine')], setMessages: [{ id: newId('msg_'), state: 'consumed' }] },
      ]
      for (const change of failing) {
        await assert.rejects(sessions.commit(session.id, change), (error) => isServiceError(error))
      }
      assert.deepEqual(await sessions.session(session.id), session)
      assert.deepEqual(await sessions.messages(session.id), [message])
      assert.deepEqual(await sessions.events(session.id), [event])
      assert.deepEqual(await sessions.stream(session.id, 0, 10), [])
      const committed = await sessions.commit(session.id, { addStream: [{ type: 'ready' }] })
      assert.equal(committed?.lastSequence, 1)
    })

    test('commit: a message of another session is not changed', async () => {
      const [one, other] = [await newOne(), await newOne()]
      const [foreign] = await sessions.messages(other.id)
      assert.ok(foreign)
      const change: SessionChange = { setMessages: [{ id: foreign.id, state: 'cancelled' }] }
      await refuses(sessions.commit(one.id, change), 'not_found')
      assert.deepEqual(await sessions.messages(other.id), [foreign])
    })

    test('stream: a read ends with the event that reaches the bound, and the next read continues there', async () => {
      const session = await newOne()
      const lengths = [10, 10, 700_000, 700_000, 10, 3_000_000, 3_000_000, 10]
      await sessions.commit(session.id, {
        addStream: lengths.map((length) => ({ type: 'assistant', text: 'x'.repeat(length) })),
      })
      const pages: number[][] = []
      for (let after = 0; after < lengths.length; after = pages.at(-1)!.at(-1)!) {
        const page = await sessions.stream(session.id, after, 32)
        for (const { sequence, data } of page) assert.equal(String(data['text']).length, lengths[sequence - 1])
        pages.push(page.map(({ sequence }) => sequence))
      }
      assert.deepEqual(pages, [[1, 2, 3, 4], [5, 6], [7], [8]])
      assert.equal((await sessions.stream(session.id, 0, 2)).length, 2)
      assert.deepEqual(await sessions.stream(session.id, lengths.length, 32), [])
    })

    test('commit: fifty concurrent ones get dense numbers, in the order of their rows', async () => {
      const session = await newOne()
      const committed = await Promise.all(
        numbered(50, 0).map((writer) =>
          sessions.commit(session.id, {
            usage: { inputTokens: 2, cacheReadTokens: 1, cacheWriteTokens: 0, outputTokens: 1, costNanoUsd: 3 },
            addStream: numbered((writer % 3) + 1).map((part) => ({ type: 'assistant', writer, part })),
            addMessages: [messageOf(String(writer))],
            addEvents: [eventOf(String(writer))],
          }),
        ),
      )
      const total = numbered(50, 0).reduce((sum, writer) => sum + (writer % 3) + 1, 0)
      const stream = await sessions.stream(session.id, 0, 1000)
      assert.deepEqual(sequencesOf(stream), numbered(total))
      // Each commit was told the number of its last event.
      const lasts = committed.map((result) => result?.lastSequence).toSorted((a, b) => Number(a) - Number(b))
      const parts = numbered(50, 0).map((writer) => stream.filter(({ data }) => data['writer'] === writer))
      assert.deepEqual(
        parts.map((some) => some.at(-1)?.sequence).toSorted((a, b) => Number(a) - Number(b)),
        lasts,
      )
      assert.equal(await sessions.lastSequence(session.id), total)
      const after = await sessions.session(session.id)
      assert.deepEqual([after?.inputTokens, after?.cacheReadTokens, after?.outputTokens], [100, 50, 50])
      assert.equal(after?.costNanoUsd, 150)

      // Messages and events stand in the order of the commits that wrote them, which the stream shows.
      const writers = [...new Set(stream.map(({ data }) => String(data['writer'])))]
      const messages = await sessions.messages(session.id)
      const events = await sessions.events(session.id)
      const texts = [messages.map(({ content }) => content), events.map(({ message }) => message)]
      for (const all of texts) assert.deepEqual(all.slice(1), writers)
    })

    test('commit: concurrent ones of several sessions do not mix', async () => {
      const made = [await newOne(), await newOne(), await newOne()]
      await Promise.all(
        made.flatMap(({ id }) =>
          numbered(10).map((part) => sessions.commit(id, { addStream: [{ type: 'assistant', id, part }] })),
        ),
      )
      for (const { id } of made) {
        const stream = await sessions.stream(id, 0, 100)
        assert.deepEqual(sequencesOf(stream), numbered(10))
        assert.ok(stream.every(({ data }) => data['id'] === id))
      }
    })

    test('stream: thousands of events are written in one commit and read in pages', async () => {
      const session = await newOne()
      const data = numbered(2500).map((part) => ({ type: 'assistant', part }))
      const committed = await sessions.commit(session.id, { addStream: data })
      assert.equal(committed?.lastSequence, 2500)
      const page = await sessions.stream(session.id, 1999, 3)
      const parts = page.map(({ data: read }) => read['part'])
      assert.deepEqual([sequencesOf(page), parts], [numbered(3, 2000), numbered(3, 2000)])
      assert.deepEqual(await sessions.stream(session.id, 2500, 10), [])
    })

    test('stream: a replayed event keeps the order of its keys', async () => {
      const session = await newOne()
      const data = { type: 'assistant', zebra: 1.5, a: [true, null], message: { role: 'x', content: [] } }
      await sessions.commit(session.id, { addStream: [data] })
      const replayed = await sessions.stream(session.id, 0, 1)
      assert.equal(JSON.stringify(replayed[0]?.data), JSON.stringify(data))
    })

    test('messages: the first of a state is the oldest of the user', async () => {
      const session = await newOne()
      const [first] = await sessions.messages(session.id)
      assert.ok(first)
      const later = messageOf('later', { createdAt: new Date('2000-01-01') })
      const notice = messageOf('notice', { role: 'system' })
      await sessions.commit(session.id, { addMessages: [notice, later] })
      assert.deepEqual(await sessions.firstMessage(session.id, 'queued'), first)
      await sessions.commit(session.id, { setMessages: [{ id: first.id, state: 'started' }] })
      assert.deepEqual(await sessions.firstMessage(session.id, 'queued'), later)
      assert.deepEqual(await sessions.firstMessage(session.id, 'started'), { ...first, state: 'started' })
      assert.equal(await sessions.firstMessage(session.id, 'cancelled'), undefined)
    })

    test('messages: one is found in its session alone, and queued ones are listed by id', async () => {
      const [session, other] = [await newOne(), await newOne()]
      const [first] = await sessions.messages(session.id)
      assert.ok(first)
      const waiting = [messageOf('b'), messageOf('c')]
      await sessions.commit(session.id, { addMessages: [...waiting, messageOf('notice', { role: 'system' })] })
      assert.deepEqual(await sessions.message(session.id, waiting[1]!.id), waiting[1])
      assert.equal(await sessions.message(other.id, first.id), undefined)
      const ids = idsOf(waiting)
      assert.deepEqual(await sessions.queuedMessageIds(session.id), [first.id, ...ids])
      await sessions.commit(session.id, { setMessages: [{ id: first.id, state: 'cancelled' }] })
      assert.deepEqual(await sessions.queuedMessageIds(session.id), ids)
    })

    test('commit: every optional field set to undefined is cleared', async () => {
      const session = await newOne({ userName: 'Ada', userEmail: 'a@b', checkpointId: 'cp-1', agentProcessId: 'es-1' })
      const committed = await sessions.commit(session.id, {
        session: { userName: undefined, userEmail: undefined, checkpointId: undefined, agentProcessId: undefined },
      })
      const { agentConfig, artifacts, ...record } = session
      const { userName: _1, userEmail: _2, checkpointId: _3, agentProcessId: _4, ...rest } = record
      assert.deepEqual(committed?.session, { ...rest, updatedAt: committed?.session.updatedAt })
      assert.deepEqual(await sessions.session(session.id), { ...committed.session, agentConfig, artifacts })
    })
  })
}
