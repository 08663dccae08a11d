import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import fc from 'fast-check'
import { isServiceError } from '../../src/errors.ts'
import { newId } from '../../src/lib/id.ts'
import type { Message, PendingRewind, RewindWhat, Session } from '../../src/session/session.ts'
import type { SessionChange } from '../../src/session/store.ts'
import type { Point, Rewind, Turn } from '../../src/session/turn.ts'
import type { Store } from '../../src/store/index.ts'
import { valuesOf } from '../support/database.ts'
import { eventOf, idsOf, messageOf, newOrganisation, newSession, sessionOf } from './kit.ts'

const createdAt = new Date('2026-01-15T10:37:00.005Z')
const project = { artifacts: [{ path: '/a', summary: 'one\0' }], framework: 'vite' }

function pointOf(fields: Partial<Point> = {}): Point {
  const sizes = { kind: 'full', sizeBytes: 2 ** 40, durationMs: 12 } as const
  return { checkpointId: newId('cp-'), origin: 'turn', afterEvent: 0, ...sizes, project, createdAt, ...fields }
}

function rewindOf(fields: Partial<Omit<Rewind, 'event'>> = {}): Omit<Rewind, 'event'> {
  return { what: 'all', checkpointId: newId('cp-'), undoCheckpointId: newId('cp-'), createdAt, ...fields }
}

export function sessionTurnTests(store: Store): void {
  const { sessions } = store
  const newOne = async (fields: Partial<Session> = {}) =>
    await newSession(store, (await newOrganisation(store)).id, fields)

  /** A turn of two stream events in one commit, with an answer. Returns the id of its message. */
  async function takeTurn(sessionId: string, parentId?: string, more: SessionChange = {}): Promise<string> {
    const message = messageOf('ask')
    const { id: messageId } = message
    const { state: _state, ...answer } = messageOf('answer', { role: 'assistant', turnId: messageId })
    await sessions.commit(sessionId, {
      session: { headTurnId: messageId },
      addMessages: [message, answer],
      addStream: [{ type: 'result' }, { type: 'turn_complete' }],
      turns: [
        { type: 'begun', messageId, parentId, eventsBefore: 0 },
        { type: 'ended', messageId, subtype: 'success', preview: 'none', eventsBefore: 2 },
      ],
      ...more,
    })
    return messageId
  }

  async function rewind(sessionId: string, fields: Partial<Omit<Rewind, 'event'>> = {}): Promise<number> {
    const change = { rewind: rewindOf(fields), addStream: [{ type: 'rewound' }] }
    return (await sessions.commit(sessionId, change))!.lastSequence
  }

  const idsOfTurns = async (sessionId: string, branch: 'in force' | 'all' = 'in force') =>
    (await sessions.turns(sessionId, { limit: 1000, branch })).map(({ messageId }) => messageId)

  suite('turns of a session', () => {
    test('turn: its begin and its end are kept with their numbers, the counters of its begin, and what it changed', async () => {
      const session = await newOne({ inputTokens: 2 ** 40, costNanoUsd: 7 })
      const [message] = await sessions.messages(session.id)
      const messageId = message!.id
      await sessions.commit(session.id, { addStream: [{ type: 'ready' }] })
      const begun = await sessions.commit(session.id, {
        session: { headTurnId: messageId },
        addStream: [{ type: 'a' }, { type: 'b' }],
        turns: [{ type: 'begun', messageId, parentId: undefined, eventsBefore: 1 }],
      })
      assert.equal(begun?.session.headTurnId, messageId)
      const usageBefore = {
        inputTokens: 2 ** 40,
        cacheReadTokens: 0,
        cacheWriteTokens: 0,
        outputTokens: 0,
        costNanoUsd: 7,
      }
      const running: Turn = { messageId, firstEvent: 3, startedAt: begun.session.updatedAt, usageBefore }
      assert.deepEqual(await sessions.turn(session.id, messageId), running)
      assert.deepEqual(await sessions.message(session.id, messageId), { ...message, turnId: messageId })

      const tokens = {
        inputTokens: 1,
        cacheReadTokens: 1,
        cacheWriteTokens: 1,
        outputTokens: 1,
        costNanoUsd: undefined,
      }
      await sessions.commit(session.id, { usage: tokens })
      const { state: _state, ...answer } = messageOf('done', { role: 'assistant', turnId: messageId })
      const ended = await sessions.commit(session.id, {
        addMessages: [answer],
        addStream: [{ type: 'c' }, { type: 'd' }, { type: 'e' }],
        turns: [{ type: 'ended', messageId, subtype: 'interrupted', preview: 'ready', eventsBefore: 2 }],
      })
      const files = { files: [], addedLines: 1, removedLines: 2, isCut: true }
      const file = { path: '/a\0', change: 'renamed', isBinary: false, addedLines: 1, removedLines: 0 } as const
      await sessions.setTurnFiles(session.id, messageId, { ...files, files: [file] })
      const whole: Turn = {
        ...running,
        lastEvent: 5,
        endedAt: ended!.session.updatedAt,
        subtype: 'interrupted',
        preview: 'ready',
        files: { ...files, files: [{ ...file, path: '/a\ufffd' }] },
      }
      assert.deepEqual(await sessions.turn(session.id, messageId), whole)
      assert.deepEqual((await sessions.messages(session.id)).at(-1), answer)

      const second = await takeTurn(session.id, messageId)
      const { parentId, firstEvent, lastEvent, usageBefore: unknown } = (await sessions.turn(session.id, second))!
      assert.deepEqual([parentId, firstEvent, lastEvent, unknown.costNanoUsd], [messageId, 7, 8, undefined])
      const all = await sessions.turns(session.id, { limit: 10 })
      assert.deepEqual(all, [await sessions.turn(session.id, second), whole])
    })

    test('turn: one that began before turns were kept can end', async () => {
      const session = await newOne()
      const [message] = await sessions.messages(session.id)
      const ended = { type: 'ended', subtype: 'success', preview: 'none', eventsBefore: 0 } as const
      await sessions.commit(session.id, { turns: [{ ...ended, messageId: message!.id }] })
      assert.equal(await sessions.turn(session.id, message!.id), undefined)
    })

    test('turn: unknown and foreign ones are not found', async () => {
      const [session, other] = [await newOne(), await newOne()]
      const id = await takeTurn(session.id)
      const point = pointOf({ turnId: id })
      await sessions.commit(session.id, { addPoint: point })
      assert.equal(await sessions.turn(other.id, id), undefined)
      assert.deepEqual(await sessions.turns(other.id, { limit: 9 }), [])
      assert.deepEqual(await sessions.branch(other.id, id, 9), [])
      assert.deepEqual(await sessions.branch(session.id, undefined, 9), [])
      assert.equal(await sessions.point(other.id, point.checkpointId), undefined)
      assert.equal(await sessions.pointOfTurn(other.id, id), undefined)
      assert.equal(await sessions.pointBefore(other.id, { after: -1, until: 100 }), undefined)
      assert.deepEqual(await sessions.points(other.id), [])
      assert.equal(await sessions.rewindBefore(other.id, 100), undefined)
      assert.equal(await sessions.rewindUndoneBy(other.id, point.checkpointId), undefined)
      await sessions.removePoints(other.id, [point.checkpointId])
      await sessions.setTurnFiles(other.id, id, { files: [], addedLines: 0, removedLines: 0, isCut: false })
      assert.deepEqual([...(await sessions.knownPoints([point.checkpointId, 'cp-x']))], [point.checkpointId])
      assert.equal((await sessions.turn(session.id, id))?.files, undefined)
    })

    test('turns: they are read newest first, before one of them and up to a number', async () => {
      const session = await newOne()
      const ids: string[] = []
      for (let index = 0; index < 5; index++) ids.unshift(await takeTurn(session.id, ids[0]))
      const read = async (query: object) =>
        (await sessions.turns(session.id, { limit: 2, ...query })).map(({ messageId }) => messageId)
      assert.deepEqual(await read({}), ids.slice(0, 2))
      assert.deepEqual(await read({ before: ids[1] }), ids.slice(2, 4))
      assert.deepEqual(await read({ before: ids[4] }), [])
      // They begin with 9, 7, 5, 3, 1.
      assert.deepEqual(await read({ begunBy: 6 }), ids.slice(2, 4))
      assert.deepEqual(await read({ begunBy: 5, limit: 1 }), [ids[2]])
      assert.deepEqual(await read({ begunBy: 0 }), [])
      assert.deepEqual(await sessions.branch(session.id, ids[1], 3), ids.slice(1, 4))
      assert.deepEqual(await sessions.branch(session.id, ids[3], 3), ids.slice(3))
    })

    test('commit: a session keeps its branch, its pause and a rewind that is decided, and loses them again', async () => {
      const session = await newOne()
      const pendingRewind: PendingRewind = {
        what: 'all',
        checkpointId: 'cp-1',
        kind: 'full',
        toEvent: 3,
        undoCheckpointId: 'cp-2',
        project: { artifacts: [{ path: '/a', summary: '' }], framework: '' },
      }
      const fields = { headTurnId: 'msg_1', unsavedTurnId: 'msg_1', pendingRewind, pausedFor: 'budget' } as const
      const more = { archivedFor: 'another won', forkPoint: 'msg_2' }
      const all = { ...fields, ...more }
      const committed = await sessions.commit(session.id, { session: all })
      const pick = ({
        headTurnId,
        unsavedTurnId,
        pendingRewind: pending,
        pausedFor,
        archivedFor,
        forkPoint,
      }: Partial<Session>) => ({ headTurnId, unsavedTurnId, pendingRewind: pending, pausedFor, archivedFor, forkPoint })
      for (const read of [committed?.session, await sessions.head(session.id), await sessions.session(session.id)])
        assert.deepEqual(pick(read!), all)
      const cleared = Object.fromEntries(Object.keys(all).map((key) => [key, undefined]))
      assert.deepEqual(pick((await sessions.commit(session.id, { session: cleared }))!.session), pick({}))
      const born = await newOne(all)
      assert.deepEqual(pick((await sessions.session(born.id))!), all)
    })

    test('commit: with turns, a point and a rewind all or nothing is applied, and the numbers stay dense', async () => {
      const session = await newOne()
      const first = await takeTurn(session.id)
      const kept = pointOf({ turnId: first, afterEvent: 2 })
      await sessions.commit(session.id, { addPoint: kept })
      const before = await sessions.session(session.id)
      const second = messageOf('again')
      const begun = { type: 'begun', messageId: second.id, parentId: first, eventsBefore: 0 } as const
      const whole: SessionChange = {
        session: { headTurnId: second.id },
        addMessages: [second],
        addStream: [{ type: 'a' }, { type: 'rewound' }],
        turns: [begun],
        addPoint: pointOf({ turnId: second.id, afterEvent: 3 }),
        rewind: rewindOf({ turnId: second.id }),
      }
      const failing: SessionChange[] = [
        { ...whole, turns: [begun, { ...begun, messageId: first }] },
        { ...whole, addPoint: kept },
        { ...whole, addMessages: [second, second] },
        { addPoint: kept, addStream: [{ type: 'x' }] },
        { turns: [{ ...begun, messageId: first }], addStream: [{ type: 'x' }] },
      ]
      for (const change of failing)
        await assert.rejects(sessions.commit(session.id, change), (error) => isServiceError(error, 'conflict'))
      assert.equal(await sessions.commit(session.id, { ...whole, when: 'ended' }), undefined)
      assert.deepEqual(await sessions.session(session.id), before)
      assert.deepEqual(await idsOfTurns(session.id, 'all'), [first])
      assert.deepEqual(await sessions.points(session.id), [
        { checkpointId: kept.checkpointId, origin: 'turn', ordinal: 1 },
      ])
      assert.equal(await sessions.rewindBefore(session.id, 1000), undefined)
      assert.equal((await sessions.commit(session.id, whole))?.lastSequence, 4)
      assert.deepEqual(
        (await sessions.stream(session.id, 0, 10)).map(({ sequence }) => sequence),
        [1, 2, 3, 4],
      )
      assert.equal((await sessions.rewindBefore(session.id, 1000))?.event, 4)
      assert.equal((await sessions.turn(session.id, second.id))?.firstEvent, 3)
    })

    test('commit: concurrent turns, points and lines of one session get dense numbers that agree with the stream', async () => {
      const session = await newOne()
      await Promise.all(
        Array.from({ length: 30 }, async (_, index) => {
          if (index % 3 === 0) await takeTurn(session.id)
          else if (index % 3 === 1)
            await sessions.commit(session.id, { addPoint: pointOf(), addStream: [{ type: 'checkpoint_created' }] })
          else await sessions.commit(session.id, { addStream: [{ type: 'assistant' }] })
        }),
      )
      const stream = await sessions.stream(session.id, 0, 100)
      assert.deepEqual(
        stream.map(({ sequence }) => sequence),
        Array.from({ length: 40 }, (_, index) => index + 1),
      )
      const turns = await sessions.turns(session.id, { limit: 100 })
      assert.equal(turns.length, 10)
      for (const { firstEvent, lastEvent } of turns) {
        const types = stream.slice(firstEvent - 1, lastEvent).map(({ data }) => data.type)
        assert.deepEqual(types, ['result', 'turn_complete'])
      }
      // Their order is that of the stream.
      assert.deepEqual(
        turns.map(({ firstEvent }) => firstEvent),
        turns.map(({ firstEvent }) => firstEvent).toSorted((a, b) => b - a),
      )
    })

    test('turns: hundreds of a fork are taken over in one commit, with their messages', async () => {
      const session = await newOne()
      const first = await takeTurn(session.id)
      const turns: SessionChange['turns'] = []
      const addMessages: Message[] = []
      let parentId = first
      for (let index = 0; index < 1500; index++) {
        const messageId = newId('msg_')
        addMessages.push(messageOf('taken over', { id: messageId, turnId: messageId, state: 'consumed' }))
        turns.push({ type: 'begun', messageId, parentId, eventsBefore: 0 })
        turns.push({ type: 'ended', messageId, subtype: 'success', preview: 'none', eventsBefore: 0 })
        parentId = messageId
      }
      const adoptedFrom = newId('session_')
      const change = {
        turns,
        addMessages,
        rewind: rewindOf({ turnId: parentId, adoptedFrom }),
        addStream: [{ type: 'rewound' }],
      }
      await sessions.commit(session.id, { ...change, session: { headTurnId: parentId } })
      const branch = [first, ...idsOf(addMessages)].toReversed()
      assert.deepEqual(await sessions.branch(session.id, parentId, 10_000), branch)
      assert.deepEqual(
        (await sessions.turns(session.id, { limit: 10_000 })).map(({ messageId }) => messageId),
        branch,
      )
      assert.equal((await sessions.rewindBefore(session.id, 3))?.adoptedFrom, adoptedFrom)
      await rewind(session.id, { turnId: first })
      assert.deepEqual(await idsOfTurns(session.id), [first])
      assert.equal((await sessions.messages(session.id)).length, 3)
    })
  })

  suite('points of a session', () => {
    test('point: it is kept as it was given, and found by checkpoint, turn and number', async () => {
      const session = await newOne()
      const turn = await takeTurn(session.id)
      const bare = pointOf({ kind: 'disk_only', origin: 'undo' })
      const early = pointOf({ turnId: turn, afterEvent: 2 })
      const undo = pointOf({ turnId: turn, afterEvent: 2, origin: 'undo' })
      for (const addPoint of [bare, early, undo]) await sessions.commit(session.id, { addPoint })
      const lenient = { artifacts: [{ path: '/a', summary: 'one\ufffd' }], framework: 'vite' }
      const read = (point: Point) => ({ ...point, project: lenient })
      for (const point of [bare, early, undo])
        assert.deepEqual(await sessions.point(session.id, point.checkpointId), read(point))
      assert.deepEqual(await sessions.pointOfTurn(session.id, turn), read(early))
      assert.deepEqual(await sessions.pointOfTurn(session.id, turn, 'turn'), read(early))
      assert.deepEqual(await sessions.pointOfTurn(session.id, turn, 'undo'), read(undo))
      const before = async (after: number, until: number) =>
        (await sessions.pointBefore(session.id, { after, until }))?.checkpointId
      assert.equal(await before(-1, 1), bare.checkpointId)
      assert.equal(await before(0, 1), undefined)
      assert.equal(await before(0, 2), undo.checkpointId)
      assert.equal(await before(0, 99), undo.checkpointId)
      assert.equal(await before(2, 99), undefined)
      const known = await sessions.points(session.id)
      const [a, b, c] = [bare, early, undo].map(({ checkpointId, origin }) => ({ checkpointId, origin }))
      assert.deepEqual(known, [
        { ...a, ordinal: 0 },
        { ...b, ordinal: 1 },
        { ...c, ordinal: 1 },
      ])
      await sessions.removePoints(session.id, [early.checkpointId, bare.checkpointId, newId('cp-')])
      assert.deepEqual(await sessions.points(session.id), [{ ...c, ordinal: 1 }])
      assert.deepEqual((await sessions.knownPoints([early.checkpointId])).size, 0)
    })

    test('point of a turn: one before a rewind stands for its end only while the sandbox is the one that it left', async () => {
      const session = await newOne()
      const first = await takeTurn(session.id)
      const second = await takeTurn(session.id, first)
      const undo = pointOf({ turnId: second, afterEvent: 4, origin: 'undo' })
      await sessions.commit(session.id, { addPoint: undo })
      assert.equal((await sessions.pointOfTurn(session.id, second))?.checkpointId, undo.checkpointId)
      await sessions.removePoints(session.id, [undo.checkpointId])
      const event = await rewind(session.id, { what: 'machine', turnId: first })
      const mixed = pointOf({ turnId: second, afterEvent: event, origin: 'undo' })
      await sessions.commit(session.id, { addPoint: mixed })
      assert.equal(await sessions.pointOfTurn(session.id, second), undefined)
      assert.equal((await sessions.pointOfTurn(session.id, second, 'undo'))?.checkpointId, mixed.checkpointId)
    })

    test('points: each tells the number of its turn among those of all branches', async () => {
      const session = await newOne()
      const ids: string[] = []
      for (let index = 0; index < 4; index++) {
        // Every other turn goes on from the first.
        const id = await takeTurn(session.id, index % 2 === 0 ? ids.at(-1) : ids[0])
        ids.push(id)
        await sessions.commit(session.id, { addPoint: pointOf({ turnId: id, afterEvent: 2 * index + 2 }) })
        if (index % 2 === 0) await rewind(session.id, { turnId: ids[0]! })
      }
      assert.deepEqual(
        (await sessions.points(session.id)).map(({ ordinal }) => ordinal),
        [1, 2, 3, 4],
      )
    })
  })

  suite('rewinds of a session', () => {
    test('rewind: it is kept with the number of its event, and found by a later number and by its undo', async () => {
      const session = await newOne()
      const turn = await takeTurn(session.id)
      const full = rewindOf({ turnId: turn, restoredMessageId: newId('msg_'), adoptedFrom: newId('session_') })
      await sessions.commit(session.id, { rewind: full, addStream: [{ type: 'error' }, { type: 'rewound' }] })
      const bare = rewindOf({ what: 'machine' })
      await sessions.commit(session.id, { rewind: bare, addStream: [{ type: 'rewound' }] })
      assert.equal(await sessions.rewindBefore(session.id, 3), undefined)
      assert.deepEqual(await sessions.rewindBefore(session.id, 4), { ...full, event: 4 })
      assert.deepEqual(await sessions.rewindBefore(session.id, 5), { ...bare, event: 5 })
      assert.deepEqual(await sessions.rewindUndoneBy(session.id, full.undoCheckpointId), { ...full, event: 4 })
    })

    test('rewind: messages of turns that it leaves are read with all branches only, and marked', async () => {
      const session = await newOne()
      const notice = messageOf('a notice', { role: 'system' })
      const foreign = messageOf('came with a fork', { turnId: newId('msg_') })
      await sessions.commit(session.id, { addMessages: [notice, foreign] })
      const first = await takeTurn(session.id)
      const second = await takeTurn(session.id, first)
      const all = await sessions.messages(session.id)
      assert.deepEqual(
        all.slice(3).map(({ turnId }) => turnId),
        [first, first, second, second],
      )
      await rewind(session.id, { turnId: first, what: 'machine' })
      assert.deepEqual(await sessions.messages(session.id), all)
      await rewind(session.id, { turnId: first })
      const marked = all.map((message) => (message.turnId === second ? { ...message, isLeft: true } : message))
      const kept = all.slice(0, 5)
      assert.deepEqual(await sessions.messages(session.id), kept)
      assert.deepEqual(await sessions.messages(session.id, { limit: 100, branch: 'in force' }), kept)
      assert.deepEqual(await sessions.messages(session.id, { limit: 100, branch: 'all' }), marked)
      assert.deepEqual(await sessions.messages(session.id, { limit: 2, branch: 'all', after: second }), marked.slice(6))
      assert.deepEqual((await sessions.histories([session.id])).get(session.id)?.messages, kept)
      assert.deepEqual(await sessions.message(session.id, second), marked[5])
      assert.equal((await sessions.turn(session.id, second))?.leftEvent, 6)
      // All have been left, but those that no turn of this session has said.
      await rewind(session.id)
      assert.deepEqual(await sessions.messages(session.id), all.slice(0, 3))
      assert.deepEqual(await idsOfTurns(session.id), [])
      assert.deepEqual(
        [(await sessions.turn(session.id, first))?.leftEvent, (await sessions.turn(session.id, second))?.leftEvent],
        [7, 6],
      )
      await rewind(session.id, { turnId: second, what: 'conversation' })
      assert.deepEqual(await sessions.messages(session.id), all)
    })

    test('rewind: backwards and forwards over a tree of branches the turns in force are those up to its turn', async () => {
      interface Known {
        id: string
        parent: Known | undefined
        leftEvent: number | undefined
      }
      const step = fc.record({
        kind: fc.constantFrom('turn', 'turn', 'rewind'),
        to: fc.nat(),
        what: fc.constantFrom<RewindWhat>('all', 'conversation', 'machine'),
      })
      await fc.assert(
        fc.asyncProperty(fc.array(step, { minLength: 6, maxLength: 25 }), async (steps) => {
          const { id } = await newOne()
          const turns: Known[] = []
          let head: Known | undefined
          let last = 0
          for (const { kind, to, what } of steps) {
            if (kind === 'turn') {
              const turn: Known = { id: await takeTurn(id, head?.id), parent: head, leftEvent: undefined }
              turns.push(turn)
              head = turn
              last += 2
              continue
            }
            // One in some goes to before the first turn.
            const target = turns[to % (turns.length + 1)]
            last += 1
            assert.equal(await rewind(id, { what, ...(target && { turnId: target.id }) }), last)
            if (what === 'machine') continue
            head = target
            const chain = new Set<Known>()
            for (let turn = head; turn !== undefined; turn = turn.parent) chain.add(turn)
            for (const turn of turns) turn.leftEvent = chain.has(turn) ? undefined : (turn.leftEvent ?? last)
            assert.deepEqual(
              await sessions.branch(id, head?.id, 100),
              [...chain].map((turn) => turn.id),
            )
          }
          const newestFirst = turns.toReversed()
          const inForce = newestFirst.filter(({ leftEvent }) => leftEvent === undefined).map((turn) => turn.id)
          assert.deepEqual(await idsOfTurns(id), inForce)
          const read = await sessions.turns(id, { limit: 100, branch: 'all' })
          assert.deepEqual(
            read.map(({ messageId, leftEvent }) => [messageId, leftEvent]),
            newestFirst.map((turn) => [turn.id, turn.leftEvent]),
          )
          const said = (await sessions.messages(id)).flatMap(({ turnId }) => turnId ?? [])
          assert.deepEqual(
            said,
            inForce.toReversed().flatMap((turn) => [turn, turn]),
          )
          const all = await sessions.messages(id, { limit: 1000, branch: 'all' })
          assert.deepEqual(
            all.filter(({ isLeft }) => isLeft).map(({ turnId }) => turnId),
            turns.filter(({ leftEvent }) => leftEvent !== undefined).flatMap((turn) => [turn.id, turn.id]),
          )
          assert.equal(await sessions.lastSequence(id), last)
        }),
        { numRuns: 12 },
      )
    })
  })

  suite('forks of a session', () => {
    test('forks: those of a session are listed oldest first, also by the turn after which they begin', async () => {
      const { id: orgId } = await newOrganisation(store)
      const source = await newSession(store, orgId)
      const forks: Session[] = []
      for (const [index, forkPoint] of ['msg_a', 'msg_b', 'msg_a', undefined].entries()) {
        const fields = {
          forkedFrom: source.id,
          createdAt: new Date(2026, 1, 10 - index),
          ...(forkPoint && { forkPoint }),
        }
        forks.unshift(await newSession(store, orgId, fields))
      }
      await newSession(store, orgId, { forkedFrom: newId('session_'), forkPoint: 'msg_a' })
      const read = async (query: { turnIds?: string[]; limit?: number }) =>
        idsOf(await sessions.forksOf(source.id, { limit: 10, ...query }))
      assert.deepEqual(await read({}), idsOf(forks))
      assert.deepEqual(await read({ limit: 2 }), idsOf(forks.slice(0, 2)))
      assert.deepEqual(await read({ turnIds: ['msg_a', 'msg_z'] }), [forks[1]!.id, forks[3]!.id])
      assert.deepEqual(await read({ turnIds: [] }), [])
      await sessions.commit(forks[1]!.id, {
        session: { status: 'ended', activity: 'ended', archivedFor: 'another won' },
      })
      const [first] = await sessions.forksOf(source.id, { turnIds: ['msg_a'], limit: 1 })
      const { id, userId, createdAt: made } = forks[1]!
      const wanted = {
        id,
        userId,
        createdAt: made,
        status: 'ended',
        activity: 'ended',
        forkPoint: 'msg_a',
        archivedFor: 'another won',
      }
      assert.deepEqual(first, wanted)
      await sessions.deleteSessions([id])
      assert.deepEqual(await read({ turnIds: ['msg_a'] }), [forks[3]!.id])
    })

    test('checkpoints: those are in use from which a running session begins, or can begin again', async () => {
      const { id: orgId } = await newOrganisation(store)
      const ids = ['starting', 'failed', 'idle'].map(() => newId('cp-'))
      for (const [index, activity] of (['starting', 'failed', 'idle'] as const).entries())
        await newSession(store, orgId, { activity, checkpointId: ids[index]! })
      const over = newId('cp-')
      await newSession(store, orgId, { status: 'ended', activity: 'ended', checkpointId: over })
      assert.deepEqual([...(await sessions.startingFrom([...ids, over]))].toSorted(), ids.slice(0, 2).toSorted())
    })

    test('session delete: turns, points and rewinds are deleted with it', async () => {
      const session = await newOne()
      const other = await newOne()
      const ids = [await takeTurn(session.id), await takeTurn(other.id)]
      const points = [pointOf(), pointOf()]
      for (const [index, { id }] of [session, other].entries()) {
        await sessions.commit(id, { addPoint: points[index]! })
        await rewind(id, { turnId: ids[index]! })
      }
      await sessions.deleteSessions([session.id])
      assert.deepEqual(await sessions.turns(session.id, { limit: 9, branch: 'all' }), [])
      assert.equal(await sessions.rewindBefore(session.id, 99), undefined)
      assert.deepEqual(
        [...(await sessions.knownPoints(points.map(({ checkpointId }) => checkpointId)))],
        [points[1]!.checkpointId],
      )
      assert.equal((await sessions.turns(other.id, { limit: 9 })).length, 1)
    })
  })

  suite('configuration of a session', () => {
    const skills = { '/workspace/agent/a/SKILL.md': 'long '.repeat(100_000) }
    const configOf = (fields: Partial<Session['agentConfig']> = {}): Session['agentConfig'] => ({
      ...sessionOf('').agentConfig,
      systemPrompt: newId('org_'),
      skills,
      envs: { TOKEN: '1' },
      maxTokens: 5,
      ...fields,
    })

    test('configuration: a change reaches one session alone, and keeps skills, system prompt and all other values', async () => {
      const agentConfig = configOf()
      const [session, other] = [await newOne({ agentConfig }), await newOne({ agentConfig })]
      const { systemPrompt, ...rest } = agentConfig
      const change = {
        maxCostUsd: 1.5,
        maxTokens: undefined,
        checkpoints: 'disk',
        secretEnvs: ['TOKEN'],
        capsuleOnError: true,
      } as const
      await sessions.changeAgentConfig(session.id, { ...change, secretEnvs: ['TOKEN'] })
      const { maxTokens: _cleared, ...kept } = rest
      const { maxTokens: _undefined, ...set } = change
      assert.deepEqual((await sessions.session(session.id))?.agentConfig, { ...kept, ...set, skills: {} })
      assert.deepEqual(await sessions.skills(session.id), skills)
      assert.equal((await sessions.instructions(session.id))?.systemPrompt, systemPrompt)
      assert.deepEqual((await sessions.metered(session.id))?.agentConfig, { model: 'demo', maxCostUsd: 1.5 })
      assert.deepEqual((await sessions.session(other.id))?.agentConfig, { ...rest, skills: {} })
      assert.deepEqual(await sessions.skills(other.id), skills)
      await sessions.changeAgentConfig(newId('session_'), change as never)
    })

    test('configuration: changes of one session leave one row, and one that changes nothing leaves the session as it is', async () => {
      const agentConfig = configOf()
      const session = await newOne({ agentConfig })
      for (const maxTokens of [1, 2, 3]) await sessions.changeAgentConfig(session.id, { maxTokens })
      const changed = await sessions.session(session.id)
      await sessions.changeAgentConfig(session.id, { maxTokens: 3, maxTurns: undefined })
      assert.deepEqual(await sessions.session(session.id), changed)
      const { databaseUrl } = store as Store & { databaseUrl: string }
      const rows = `select count(*)::integer from agent_configs where config ->> 'systemPrompt' = $1`
      assert.deepEqual(await valuesOf(databaseUrl, rows, [agentConfig.systemPrompt]), [1])
      assert.deepEqual(await sessions.skills(session.id), skills)
    })

    test('configuration: concurrent changes are all kept, also while forks take it over', async () => {
      const session = await newOne({ agentConfig: configOf() })
      const forks = Array.from({ length: 20 }, () => sessionOf(session.orgId))
      const changes = [
        { maxTokens: 9 },
        { maxCostUsd: 2 },
        { maxTurns: 3 },
        { checkpoints: 'none' },
        { capsuleOnError: true },
      ] as const
      await Promise.all([
        ...changes.map((change) => sessions.changeAgentConfig(session.id, change)),
        ...forks.map((fork) => sessions.createSession(fork, [], eventOf('started'), { configOf: session.id })),
      ])
      const config = (await sessions.session(session.id))?.agentConfig
      for (const change of changes) assert.deepEqual({ ...config, ...change }, config)
      for (const { id } of forks) assert.deepEqual(await sessions.skills(id), skills)
    })
  })
}
