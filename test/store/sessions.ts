import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { suite, test } from 'node:test'
import { defined } from '../../src/lib/defined.ts'
import { newId } from '../../src/lib/id.ts'
import { acting } from '../../src/events/index.ts'
import type { Message, Session, StreamEvent } from '../../src/session/session.ts'
import type { Store } from '../../src/store/index.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { allPages, eventOf, idsOf, messageOf, newOrganisation, newSession, sessionOf } from './kit.ts'

function fullSession(orgId: string): Session {
  return sessionOf(orgId, {
    name: 'full-1',
    userEmail: 'a@example.com',
    userName: 'Ada',
    framework: 'vite',
    artifacts: [
      { path: '/workspace/app/index.html', summary: 'the page' },
      { path: '/b', summary: '' },
    ],
    agentConfig: {
      harness: 'pi',
      model: 'anthropic/claude',
      cwd: '/workspace/app',
      systemPrompt: 'Be brief.\n',
      skills: { '/workspace/agent/a_b/SKILL.md': 'text' },
      allowedTools: ['bash', 'read'],
      maxTurns: 3,
      maxTokens: 5_000_000_000,
      envs: { SNAKE_CASE: '1', camelCase: '2' },
    },
    checkpointId: newId('cp-'),
    forkedFrom: newId('session_'),
    forkCheckpointOf: newId('sb-'),
    agentProcessId: newId('es-'),
    agentOffset: 2 ** 40,
    inputTokens: 2 ** 35,
    cacheReadTokens: 2 ** 34,
    cacheWriteTokens: 3,
    outputTokens: 7,
    costNanoUsd: 2 ** 52,
    updatedAt: new Date('2026-01-16T00:00:00.999Z'),
  })
}

export function sessionTests(store: Store): void {
  const { sessions } = store
  /** Stores a session with this record. */
  const create = (session: Session, messages: Message[] = []) =>
    sessions.createSession(session, messages, eventOf('started'))
  const deleteExpired = async (endedBefore: Date) =>
    await sessions.deleteSessions(await sessions.expiredSessions(endedBefore, 1000))

  suite('sessions', () => {
    test('session name: it is unique in its organisation until the session ends, and found until then', async () => {
      const { id: orgId } = await newOrganisation(store)
      const first = sessionOf(orgId, { name: 'chat' })
      await create(first)
      await create(sessionOf((await newOrganisation(store)).id, { name: 'chat' }))
      await refuses(create(sessionOf(orgId, { name: 'chat' })), 'conflict', /^name /)
      assert.equal(await sessions.sessionNamed('chat', orgId), first.id)
      await sessions.commit(first.id, { session: { status: 'ended', activity: 'ended' } })
      assert.equal(await sessions.sessionNamed('chat', orgId), undefined)
      const second = sessionOf(orgId, { name: 'chat' })
      await create(second)
      assert.equal(await sessions.sessionNamed('chat', orgId), second.id)
      assert.equal(await sessions.sessionNamed('chat', newId('org_')), undefined)
    })

    test('session: it is read as it was written, with its first message and event', async () => {
      const { id: orgId } = await newOrganisation(store)
      for (const session of [fullSession(orgId), sessionOf(orgId)]) {
        const [message, event] = [messageOf('build a page'), eventOf('Session started')]
        await sessions.createSession(session, [message], event)
        const { systemPrompt, ...config } = session.agentConfig
        const short = { ...session, agentConfig: { ...config, skills: {} } }
        assert.deepEqual(await sessions.session(session.id), short)
        assert.deepEqual(await sessions.session(session.id, orgId), short)
        assert.deepEqual(await sessions.instructions(session.id), {
          skillPaths: Object.keys(session.agentConfig.skills),
          ...defined({ systemPrompt }),
        })
        assert.deepEqual(await sessions.skills(session.id), session.agentConfig.skills)
        assert.deepEqual(await sessions.messages(session.id), [message])
        assert.deepEqual(await sessions.events(session.id), [event])
        assert.deepEqual(await sessions.stream(session.id, 0, 10), [])
        assert.equal(await sessions.lastSequence(session.id), 0)
      }
    })

    test('session: unknown and foreign ones are not found', async () => {
      const { id: orgId } = await newOrganisation(store)
      const { id } = await newSession(store, orgId)
      const unknown = newId('session_')
      assert.equal(await sessions.session(unknown), undefined)
      assert.equal(await sessions.session(id, newId('org_')), undefined)
      assert.equal(await sessions.head(unknown), undefined)
      assert.equal(await sessions.head(id, newId('org_')), undefined)
      assert.equal(await sessions.metered(unknown), undefined)
      assert.equal(await sessions.instructions(unknown), undefined)
      assert.deepEqual(await sessions.skills(unknown), {})
      assert.deepEqual(await sessions.eventTypes(unknown), [])
      assert.equal(await sessions.meteredByGatewayToken(newId('key_')), undefined)
      assert.equal(await sessions.commit(unknown, { addMessages: [messageOf('hello')] }), undefined)
      assert.deepEqual(await sessions.messages(unknown), [])
      assert.deepEqual(await sessions.events(unknown), [])
      assert.deepEqual(await sessions.stream(unknown, 0, 10), [])
      assert.equal(await sessions.firstMessage(unknown, 'queued'), undefined)
      assert.equal(await sessions.lastSequence(unknown), 0)
      assert.equal((await sessions.historyBytes([unknown])).size, 0)
      assert.equal(await sessions.message(unknown, newId('msg_')), undefined)
      assert.deepEqual(await sessions.queuedMessageIds(unknown), [])
    })

    test('histories: those of several sessions, each in its order', async () => {
      const { id: orgId } = await newOrganisation(store)
      const ids: string[] = []
      for (const texts of [['a', 'b', 'c'], [], ['d']]) {
        const { id } = await newSession(store, orgId)
        for (const text of texts) await sessions.commit(id, { addMessages: [messageOf(text)] })
        ids.push(id)
      }
      const unknown = newId('session_')
      const histories = await sessions.histories([...ids, unknown])
      for (const id of ids) {
        const [messages, events] = await Promise.all([sessions.messages(id), sessions.events(id)])
        assert.deepEqual(histories.get(id), { messages, events })
      }
      assert.deepEqual(histories.get(unknown), { messages: [], events: [] })
    })

    test('session: a failed creation leaves nothing', async () => {
      const { id: orgId } = await newOrganisation(store)
      const existing = await newSession(store, orgId)
      const [taken] = await sessions.messages(existing.id)
      assert.ok(taken)
      const session = sessionOf(orgId)
      await refuses(sessions.createSession(session, [taken], eventOf('x')), 'conflict')
      assert.equal(await sessions.session(session.id), undefined)
      await refuses(sessions.createSession(existing, [messageOf('x')], eventOf('x')), 'conflict')
    })

    test('session list: it pages newest first through equal creation times, by organisation and by user', async () => {
      const { id: orgId } = await newOrganisation(store)
      const mine: Session[] = []
      for (let index = 0; index < 5; index++) mine.push(await newSession(store, orgId, { userId: 'me' }))
      await newSession(store, orgId, { userId: 'you', createdAt: new Date('2027-01-01') })
      await newSession(store, (await newOrganisation(store)).id, { userId: 'me' })
      const pages = await allPages((page) => sessions.listSessions({ orgId, userId: 'me', limit: 2, ...page }))
      const newestFirst = mine.toSorted((a, b) => (a.id < b.id ? 1 : -1))
      assert.deepEqual(pages.flat(), newestFirst)
      const all = await sessions.listSessions({ orgId, limit: 100 })
      assert.equal(all.items.length, 6)
      assert.equal(all.items[0]?.userId, 'you')
      await refuses(sessions.listSessions({ orgId, limit: 1, cursor: 'nonsense' }), 'invalid_request', /cursor/)
    })

    test('session list: a key with a name prefix sees what is named so, and what it has made', async () => {
      const { id: orgId } = await newOrganisation(store)
      await newSession(store, orgId, { name: 'web-1' })
      const named = await newSession(store, orgId, { name: 'ci-1' })
      const key = { actor: { type: 'key', id: 'key_1' }, cause: 'request' } as const
      const own = await acting(key, () => newSession(store, orgId))
      const reach = { namePrefix: 'ci-', keyId: 'key_1' }
      const { items } = await sessions.listSessions({ orgId, limit: 10, reach })
      assert.deepEqual(items.map(({ id }) => id).toSorted(), [named.id, own.id].toSorted())
    })

    test('session list: a page ends before its histories exceed the bound, and the next one continues there', async () => {
      const { id: orgId } = await newOrganisation(store)
      const ids: string[] = []
      for (const bytes of [10, 5000, 10, 10, 10]) {
        const session = await newSession(store, orgId, {
          title: 'wanted',
          createdAt: new Date(2026, 1, ids.length + 1),
        })
        await sessions.commit(session.id, { addMessages: [messageOf('x'.repeat(bytes))] })
        ids.unshift(session.id)
      }
      for (const search of [{}, { search: 'WANTED' }]) {
        const query = { orgId, limit: 2, historyBytesMax: 4000, ...search }
        const pages = await allPages((page) => sessions.listSessions({ ...query, ...page }))
        assert.deepEqual(pages.map(idsOf), [ids.slice(0, 2), [ids[2]], [ids[3]], [ids[4]]])
      }
    })

    test('session list: artifacts count among the bytes of a page', async () => {
      const { id: orgId } = await newOrganisation(store)
      const artifacts = [{ path: `/${'x'.repeat(3000)}`, summary: '' }]
      for (let index = 0; index < 3; index++) await newSession(store, orgId, { artifacts })
      const page = await sessions.listSessions({ orgId, limit: 3, historyBytesMax: 8000 })
      assert.equal(page.items.length, 2)
      assert.deepEqual(page.items[0]?.artifacts, artifacts)
      assert.ok(page.nextCursor)
    })

    test('session search: it finds titles and messages in any case, without wildcards', async () => {
      const { id: orgId } = await newOrganisation(store)
      const titled = await newSession(store, orgId, { title: 'Coral reefs', userId: 'ann' })
      const told = await newSession(store, orgId, { title: 'Other', userId: 'bob' })
      await sessions.commit(told.id, { addMessages: [messageOf('About 100% of the_reefs \\ today')] })
      await newSession(store, (await newOrganisation(store)).id, { title: 'Coral reefs of others' })
      const found = async (search: string, more: object = {}) =>
        idsOf((await sessions.listSessions({ orgId, search, limit: 10, ...more })).items).toSorted()
      assert.deepEqual(await found('REEFS'), [titled.id, told.id].toSorted())
      assert.deepEqual(await found('reefs', { userId: 'ann' }), [titled.id])
      assert.deepEqual(await found('100% of the_reefs \\'), [told.id])
      for (const nothing of ['100_', '%reefs%', 'reefs today', '\\\\'])
        assert.deepEqual(await found(nothing), [], nothing)
      await refuses(found('a\0'), 'invalid_request')
    })

    test('session search: it pages past sessions without a match, a bounded number per page', async () => {
      const { id: orgId } = await newOrganisation(store)
      const ids: string[] = []
      const createdAt = (index: number) => new Date(Date.UTC(2026, 0, 1, 0, 0, index))
      for (let index = 0; index < 505; index++) {
        const title = index === 0 ? 'wanted first' : index > 502 ? 'wanted' : 'x'
        ids.unshift((await newSession(store, orgId, { title, createdAt: createdAt(index) })).id)
      }
      const found = (search: string) => allPages((page) => sessions.listSessions({ orgId, search, limit: 1, ...page }))
      const [last, first] = [ids[0], ids.at(-1)]
      assert.deepEqual(
        (await found('wanted')).flat().map(({ id }) => id),
        [last, ids[1], first],
      )
      assert.deepEqual((await found('first')).map(idsOf), [[], [first]])
    })

    test('session search: it reads a bounded number of bytes per page and continues there', async () => {
      const { id: orgId } = await newOrganisation(store)
      const ids: string[] = []
      for (const [index, mebibytes] of [3, 15, 15].entries()) {
        const { id } = await newSession(store, orgId, {
          title: index === 0 ? 'wanted' : 'other',
          createdAt: new Date(2026, 1, index + 1),
        })
        const content = 'x'.repeat(1024 * 1024)
        await sessions.commit(id, { addMessages: Array.from({ length: mebibytes }, () => messageOf(content)) })
        ids.push(id)
      }
      const query = { orgId, search: 'wanted', limit: 10 }
      const first = await sessions.listSessions(query)
      assert.deepEqual(first.items, [])
      assert.ok(first.nextCursor, 'two sessions of fifteen mebibytes were searched')
      const second = await sessions.listSessions({ ...query, cursor: first.nextCursor })
      assert.deepEqual([idsOf(second.items), second.nextCursor], [[ids[0]], undefined])
    })

    test('session search: it reads the whole of a long session and yields to other calls', async () => {
      const { id: orgId } = await newOrganisation(store)
      const { id } = await newSession(store, orgId, { title: 'other' })
      const contents = Array.from({ length: 50 }, (_, index) => `${index} ${'x'.repeat(200_000)}`)
      contents.push('here is the NEEDLE', ...Array.from({ length: 1500 }, () => 'short'), 'and the pin')
      await sessions.commit(id, { addMessages: contents.map((content) => messageOf(content)) })
      let others = 0
      let isSearching = true
      const between = () => {
        others += 1
        if (isSearching) setImmediate(between)
      }
      setImmediate(between)
      for (const search of ['needle', 'the pin', '49 xxx']) {
        const { items } = await sessions.listSessions({ orgId, search, limit: 1 })
        assert.deepEqual(idsOf(items), [id])
      }
      assert.deepEqual((await sessions.listSessions({ orgId, search: 'nowhere', limit: 1 })).items, [])
      isSearching = false
      assert.ok(others >= 12, `${others} times somebody else`)
    })

    test('history: messages and events are read in pages, oldest first, per session', async () => {
      const { id: orgId } = await newOrganisation(store)
      const [session, other] = [await newSession(store, orgId), await newSession(store, orgId)]
      for (let index = 0; index < 4; index++) {
        for (const { id } of [session, other]) {
          const change = { addMessages: [messageOf(`m${index}`)], addEvents: [eventOf(`e${index}`)] }
          await sessions.commit(id, change)
        }
      }
      for (const kind of ['messages', 'events'] as const) {
        const all = idsOf(await sessions[kind](session.id))
        assert.equal(all.length, 5)
        const first = await sessions[kind](session.id, { limit: 2 })
        const rest = await sessions[kind](session.id, { limit: 10, after: first[1]!.id })
        assert.deepEqual(idsOf([...first, ...rest]), all)
        assert.deepEqual(await sessions[kind](session.id, { limit: 2, after: all.at(-1)! }), [])
      }
    })

    test('session: it is found by status', async () => {
      const { id: orgId } = await newOrganisation(store)
      const running = await newSession(store, orgId)
      const ended = await newSession(store, orgId, { status: 'ended', activity: 'ended' })
      const ids = idsOf(await sessions.sessionsIn('running'))
      assert.ok(ids.includes(running.id) && !ids.includes(ended.id))
    })

    test('skills: megabytes of them are read completely', async () => {
      const { id: orgId } = await newOrganisation(store)
      const skills = Object.fromEntries(
        Array.from({ length: 20 }, (_, index) => [`/workspace/agent/${index}.md`, `${index}\n`.repeat(100_000)]),
      )
      const { id } = await newSession(store, orgId, { agentConfig: { ...sessionOf(orgId).agentConfig, skills } })
      assert.deepEqual(await sessions.skills(id), skills)
      const paths = (await sessions.instructions(id))?.skillPaths
      assert.deepEqual(paths?.toSorted(), Object.keys(skills).toSorted())
    })

    test('skills: a long text keeps every character, and a lone surrogate is replaced', async () => {
      const { id: orgId } = await newOrganisation(store)
      const odd = 256 * 1024 - 1
      const skills = {
        '/pair': `${'x'.repeat(odd)}\u{1f600}${'"\\\n\t\u0001é'.repeat(50_000)}`,
        '/lone': `${'x'.repeat(odd)}\ud83d`,
        '/half': `${'x'.repeat(odd)}\ud83dx`,
        '/"quoted"\n': '',
      }
      const { id } = await newSession(store, orgId, { agentConfig: { ...sessionOf(orgId).agentConfig, skills } })
      assert.deepEqual(await sessions.skills(id), {
        ...skills,
        '/lone': skills['/lone'].toWellFormed(),
        '/half': skills['/half'].toWellFormed(),
      })
      const nul = { ...sessionOf(orgId).agentConfig, skills: { '/a': 'a', '/b': `${'x'.repeat(odd)}\0` } }
      await refuses(newSession(store, orgId, { agentConfig: nul }), 'invalid_request')
    })

    test('session: it can take the whole configuration of another', async () => {
      const { id: orgId } = await newOrganisation(store)
      const source = fullSession(orgId)
      await create(source)
      const made = sessionOf(orgId)
      await sessions.createSession(made, [], eventOf('started'), { configOf: source.id })
      assert.deepEqual(await sessions.skills(made.id), source.agentConfig.skills)
      assert.deepEqual(await sessions.instructions(made.id), await sessions.instructions(source.id))
      const [one, other] = [await sessions.session(made.id), await sessions.session(source.id)]
      assert.deepEqual(one?.agentConfig, other?.agentConfig)
    })

    test('session head: it is the record without artifacts and configuration, with its sizes', async () => {
      const { id: orgId } = await newOrganisation(store)
      const session = fullSession(orgId)
      const [message, event] = [messageOf('build a page'), eventOf('Session started')]
      await sessions.createSession(session, [message], event)
      const said = { type: 'ready', harness: 'pi' }
      await sessions.commit(session.id, { addStream: [said, said] })
      const { agentConfig: _config, artifacts: _artifacts, updatedAt: _updated, ...record } = session
      const { updatedAt, ...head } = (await sessions.head(session.id, orgId))!
      assert.ok(updatedAt > session.updatedAt)
      assert.deepEqual(head, {
        ...record,
        lastSequence: 2,
        streamBytes: 2 * Buffer.byteLength(JSON.stringify(said)),
        historyBytes: Buffer.byteLength(JSON.stringify(message)) + Buffer.byteLength(JSON.stringify(event)),
      })
    })

    test('metered session: it has usage, model and limits, and no text', async () => {
      const { id: orgId } = await newOrganisation(store)
      const session = fullSession(orgId)
      await create(session)
      const { agentConfig, artifacts: _artifacts, ...record } = session
      const { model, maxTokens } = agentConfig
      const metered = { ...record, agentConfig: { model, maxTokens } }
      assert.deepEqual(await sessions.metered(session.id), metered)
      assert.deepEqual(await sessions.meteredByGatewayToken(session.gatewayTokenHash), metered)
    })

    test('events: each type is listed once, in the order of the last event', async () => {
      const session = await newSession(store, (await newOrganisation(store)).id)
      const types = ['sandbox_ready', 'sandbox_hibernated', 'sandbox_resumed', 'sandbox_hibernated'] as const
      await sessions.commit(session.id, { addEvents: types.map((type) => eventOf(type, { type })) })
      assert.deepEqual(await sessions.eventTypes(session.id), [
        'session_started',
        'sandbox_ready',
        'sandbox_resumed',
        'sandbox_hibernated',
      ])
    })

    test('history: a page of messages ends with the one that reaches the bound', async () => {
      const session = await newSession(store, (await newOrganisation(store)).id)
      const lengths = [10, 400_000, 200_000, 700_000, 10, 10]
      await sessions.commit(session.id, {
        addMessages: lengths.map((length) => messageOf('é'.repeat(length / 2))),
      })
      const pages: number[][] = []
      for (let last: string | undefined; ;) {
        const page = await sessions.messages(session.id, {
          limit: 4,
          ...defined({ after: last }),
        })
        if (page.length === 0) break
        pages.push(page.map(({ content }) => Buffer.byteLength(content)))
        last = page.at(-1)!.id
      }
      assert.deepEqual(pages.flat().slice(1), lengths)
      assert.deepEqual(
        pages.map(({ length }) => length),
        [4, 1, 2],
      )
    })

    test('session: the list at start and the result of a commit have no large texts', async () => {
      const { id: orgId } = await newOrganisation(store)
      const session = fullSession(orgId)
      await create(session)
      const { id, sandboxId } = session
      const places = (await sessions.sessionsIn('running')).filter((place) => place.id === id)
      assert.deepEqual(places, [{ id, orgId, sandboxId }])
      const committed = (await sessions.commit(id, {}))!.session
      assert.deepEqual(['agentConfig' in committed, 'artifacts' in committed], [false, false])
    })

    test('session list: it leaves out system prompt and skills alone', async () => {
      const { id: orgId } = await newOrganisation(store)
      const session = fullSession(orgId)
      await create(session, [messageOf('hello')])
      const { items } = await sessions.listSessions({ orgId, limit: 10 })
      const { systemPrompt: _prompt, ...agentConfig } = session.agentConfig
      assert.deepEqual(items, [{ ...session, agentConfig: { ...agentConfig, skills: {} } }])
      assert.deepEqual(await sessions.listSessions({ orgId: newId('org_'), limit: 10 }), { items: [] })
    })

    test('session delete: expired sessions and unused configurations are deleted', async () => {
      const { id: orgId } = await newOrganisation(store)
      const long = { createdAt: new Date('2000-12-31T00:00:00Z'), updatedAt: new Date('2001-01-01T00:00:00Z') }
      const shared = { ...fullSession(orgId).agentConfig, systemPrompt: newId('org_') }
      const old = sessionOf(orgId, { ...long, status: 'ended', agentConfig: shared })
      const alone = sessionOf(orgId, {
        ...long,
        status: 'ended',
        agentConfig: { ...shared, systemPrompt: newId('org_') },
      })
      const recent = sessionOf(orgId, { ...long, status: 'ended', updatedAt: new Date('2001-01-03T00:00:00Z') })
      const running = sessionOf(orgId, { ...long, agentConfig: shared })
      for (const session of [old, alone, recent, running]) {
        await create(session, [messageOf('hello')])
      }
      const before = new Date('2001-01-02T00:00:00Z')
      assert.deepEqual((await sessions.expiredSessions(before, 10)).toSorted(), [old.id, alone.id].toSorted())
      assert.equal((await sessions.expiredSessions(before, 1)).length, 1)
      await deleteExpired(before)
      await sessions.deleteSessions([old.id, newId('session_')])
      assert.equal(await sessions.session(old.id), undefined)
      assert.deepEqual(await sessions.messages(old.id), [])
      assert.ok(await sessions.session(recent.id))
      assert.equal((await sessions.instructions(running.id))?.systemPrompt, shared.systemPrompt)
      // One that comes back is written again.
      const again = { ...alone, id: newId('session_'), gatewayTokenHash: newId('org_') }
      await create(again)
      assert.equal((await sessions.instructions(again.id))?.systemPrompt, alone.agentConfig.systemPrompt)
    })

    test('session delete: large sessions are deleted in parts, small ones together', async () => {
      const { id: orgId } = await newOrganisation(store)
      const updatedAt = new Date('1998-01-01T00:00:00Z')
      // Those of other tests.
      await deleteExpired(new Date())
      const old = async (streams: StreamEvent['data'][][], messages: Message[] = []) => {
        const session = sessionOf(orgId, { status: 'ended', updatedAt })
        await create(session, messages)
        for (const addStream of streams) await sessions.commit(session.id, { addStream })
        await sessions.commit(session.id, { session: {}, addEvents: [eventOf('ended')] })
        return session.id
      }
      // Random, so that it is as large on disk.
      const large = () => ({ type: 'assistant', text: randomBytes(1_500_000).toString('base64') })
      const tiny = Array.from({ length: 2500 }, () => ({ type: 'assistant' }))
      const many = Array.from({ length: 2500 }, () => messageOf('x'.repeat(4000)))
      const ids = [
        await old([[large(), large(), large(), large()], [{ type: 'result' }], [large(), large()]]),
        await old([tiny]),
        await old([], many),
      ]
      for (let index = 0; index < 30; index++) ids.push(await old([[{ type: 'assistant' }]]))
      const alive = await newSession(store, orgId)
      await sessions.commit(alive.id, { addStream: tiny })
      // A new connection to PostgreSQL may take longer than the whole purge.
      await Promise.all([store.ping(), store.ping(), store.ping()])
      const purging = deleteExpired(new Date())
      const purged = purging.then(() => 'purged')
      let pings = 0
      while ((await Promise.race([purged, store.ping()])) !== 'purged') pings++
      // A busy machine does few, but the purge never keeps one waiting until its own end.
      assert.ok(pings > 0, 'other calls ran meanwhile')
      for (const id of ids) {
        assert.equal(await sessions.session(id), undefined)
        assert.deepEqual(await sessions.stream(id, 0, 10), [])
        assert.deepEqual(await sessions.messages(id), [])
      }
      assert.equal(await sessions.lastSequence(alive.id), tiny.length)
    })

    test('session delete: it keeps the configuration of a concurrently created session', async () => {
      const { id: orgId } = await newOrganisation(store)
      for (let round = 0; round < 10; round++) {
        const updatedAt = new Date('1999-01-01T00:00:00Z')
        const agentConfig = { ...sessionOf(orgId).agentConfig, systemPrompt: newId('org_') }
        const old = sessionOf(orgId, { status: 'ended', updatedAt, agentConfig })
        await create(old)
        const session = sessionOf(orgId, { agentConfig })
        await Promise.all([deleteExpired(new Date('1999-01-02T00:00:00Z')), create(session)])
        const { systemPrompt } = (await sessions.instructions(session.id))!
        assert.equal(systemPrompt, agentConfig.systemPrompt)
      }
    })
  })
}
