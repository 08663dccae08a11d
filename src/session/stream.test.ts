import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'
import fc from 'fast-check'
import { createInProcessBus } from '../events/in-process-bus.ts'
import { FairYield } from '../lib/async/fair-yield.ts'
import type { StreamEvent } from './session.ts'
import type { SessionStore } from './store.ts'
import { SessionStreams, SessionTail } from './stream.ts'
import { emptySessionStore, insertSession } from './testing/store.ts'

const never = new AbortController().signal

/** One session in a store that counts what is read of its stream; `say` commits events and tells of them, as a ledger does. */
async function world(pollMs = 60_000) {
  const store = emptySessionStore()
  const { id } = await insertSession(store)
  const reads = { count: 0, now: 0, most: 0, fail: false }
  const bus = createInProcessBus()
  const deps = {
    bus,
    pollMs,
    pages: new FairYield(4),
    store: {
      ...store,
      async stream(sessionId, after, limit) {
        if (reads.fail) throw new Error('the database is gone')
        reads.count += 1
        reads.most = Math.max(reads.most, ++reads.now)
        await turn()
        reads.now -= 1
        return await store.stream(sessionId, after, limit)
      },
    } satisfies SessionStore,
  }
  const streams = new SessionStreams(deps)
  const sayUnheard = async (count: number, text = '') => {
    await store.commit(id, { addStream: Array.from({ length: count }, () => ({ type: 'assistant', text })) })
  }
  const say = async (count: number, text = '') => {
    await sayUnheard(count, text)
    bus.publish({ type: 'session_changed', sessionId: id, lastSequence: 0 })
  }
  const end = async () => {
    await store.commit(id, { session: { status: 'ended' } })
    bus.publish({ type: 'session_changed', sessionId: id, lastSequence: 0 })
  }
  const follow = (after = 0, signal: AbortSignal = never) => streams.follow(id, after, signal)
  /** The agent writes more of an answer that comes after this event. */
  const draft = (afterSequence: number, offset: number, text: string) =>
    bus.publish({ type: 'answer_drafted', sessionId: id, afterSequence, offset, text })
  const followDrafts = (signal: AbortSignal = never) => streams.followWithDrafts(id, 0, signal)
  return {
    id,
    streams,
    say,
    sayUnheard,
    end,
    follow,
    draft,
    followDrafts,
    reads,
    openTail: () => new SessionTail(deps, id),
  }
}

async function numbers(
  stream: AsyncIterable<readonly StreamEvent[]>,
  each?: (sequence: number) => Promise<void>,
): Promise<number[]> {
  const seen: number[] = []
  for await (const events of stream) {
    for (const { sequence } of events) {
      seen.push(sequence)
      await each?.(sequence)
    }
  }
  return seen
}

const upTo = (last: number, first = 1) => Array.from({ length: last - first + 1 }, (_, index) => first + index)

test('what is new is read once, whoever follows, and all get the same objects', async () => {
  const { say, end, follow, reads } = await world()
  await say(3)
  const iterators = Array.from({ length: 1000 }, () => follow())
  const next = async () => await Promise.all(iterators.map(async (iterator) => (await iterator.next()).value))
  const [known, ...same] = await next()
  assert.deepEqual(
    known?.map((event: StreamEvent) => event.sequence),
    upTo(3),
  )
  assert.ok(same.every((events) => events === known))
  assert.equal(reads.count, 1)
  const waiting = next()
  await say(1)
  const [first, ...others] = await waiting
  assert.deepEqual(
    first?.map((event: StreamEvent) => event.sequence),
    [4],
  )
  assert.ok(others.every((events) => events === first))
  assert.equal(reads.count, 2)
  const ends = next()
  await end()
  assert.ok((await ends).every((events) => events === undefined))
  assert.equal(reads.count, 3)
})

test('two hundred replays of a long history read each of its pages once, two at a time', async () => {
  const { say, end, follow, reads } = await world()
  await say(1000)
  await end()
  const all = await Promise.all(Array.from({ length: 200 }, (_, index) => numbers(follow(index % 7))))
  for (const [index, seen] of all.entries()) assert.deepEqual(seen, upTo(1000, (index % 7) + 1))
  // Twenty-eight pages up to the window, and five for the window.
  assert.ok(reads.count <= 28 + 5, `${reads.count} reads`)
  assert.ok(reads.most <= 3, 'two of the replays and one of the tail')
})

test('who falls behind what the tail keeps goes on from the store, without a gap', async () => {
  const { say, end, follow } = await world()
  await say(1)
  let release = () => {}
  const held = new Promise<void>((resolve) => (release = resolve))
  const slow = numbers(follow(), (sequence) => (sequence === 1 ? held : Promise.resolve()))
  const fast = numbers(follow())
  for (let round = 0; round < 10; round += 1) {
    await say(40)
    await turn()
  }
  await say(2, 'x'.repeat(300_000))
  await end()
  assert.deepEqual(await fast, upTo(403))
  release()
  assert.deepEqual(await slow, upTo(403))
})

test('whatever is said when, and wherever a follower begins, it gets all that follows, once', async () => {
  const step = fc.record({ say: fc.integer({ min: 1, max: 90 }), turns: fc.integer({ min: 0, max: 4 }) })
  const joins = fc.record({ at: fc.nat(6), after: fc.nat(200), pause: fc.nat(3) })
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 6 }), fc.array(joins, { maxLength: 8 }), async (steps, followers) => {
      const { say, end, follow } = await world()
      const total = steps.reduce((sum, one) => sum + one.say, 0)
      const seen: { after: number; numbers: Promise<number[]> }[] = []
      const join = (at: number) => {
        for (const { after, pause } of followers.filter((one) => one.at === at)) {
          const linger = async (sequence: number) => void (pause > 0 && sequence % pause === 0 && (await turn()))
          seen.push({ after, numbers: numbers(follow(after), linger) })
        }
      }
      for (const [at, one] of steps.entries()) {
        join(at)
        await say(one.say)
        for (let turns = 0; turns < one.turns; turns += 1) await turn()
      }
      await end()
      join(steps.length)
      for (const one of seen) assert.deepEqual(await one.numbers, upTo(total, one.after + 1))
    }),
    { numRuns: 60 },
  )
})

test('a session that is followed tells its head without a read, until it has ended', async () => {
  const { id, streams, say, end, follow, reads } = await world()
  await say(3)
  assert.equal(await streams.head(id), undefined, 'nobody follows it')
  const follower = follow()
  await follower.next()
  const { count } = reads
  const head = await streams.head(id)
  assert.deepEqual([head?.id, head?.status, head?.lastSequence], [id, 'running', 3])
  assert.equal(reads.count, count)
  const next = follower.next()
  await say(1)
  await next
  assert.equal((await streams.head(id))?.lastSequence, 4)
  const last = follower.next()
  await end()
  await last
  assert.equal(await streams.head(id), undefined)
})

test('a failing store ends all streams of the session, and the next one begins anew', async () => {
  const { say, end, follow, reads } = await world()
  await say(1)
  const broken = [1, 2].map(() => assert.rejects(numbers(follow()), /the database is gone/))
  await turn()
  await turn()
  reads.fail = true
  await say(1)
  await Promise.all(broken)
  reads.fail = false
  await end()
  assert.deepEqual(await numbers(follow()), [1, 2])
})

test('a notice that is lost costs the time of a poll and no event', async () => {
  const { say, sayUnheard, follow } = await world(5)
  await say(1)
  const follower = follow()
  assert.equal((await follower.next()).value?.[0]?.sequence, 1)
  const next = follower.next()
  await sayUnheard(1)
  assert.equal((await next).value?.[0]?.sequence, 2)
  await follower.return(undefined)
})

test('events of any size come to all, once and in order, wherever they begin', async () => {
  const { say, end, follow } = await world()
  const [small, large, huge] = ['x', 'x'.repeat(400_000), 'x'.repeat(1_200_000)]
  for (const text of [small, huge, small, large, small, small, small, huge]) await say(5, text)
  const live = numbers(follow())
  await say(3, huge)
  await say(2, small)
  await end()
  assert.deepEqual(await live, upTo(45))
  for (const after of [0, 7, 31, 32, 38]) assert.deepEqual(await numbers(follow(after)), upTo(45, after + 1))
})

test('a tail keeps no event that is larger than what it may keep', async () => {
  const { say, openTail } = await world()
  const tail = openTail()
  await tail.opened
  await say(2)
  await tail.waitForChange(never)
  assert.equal(tail.after(0)?.length, 2)
  await say(1, 'x'.repeat(300_000))
  await tail.waitForChange(never)
  assert.equal(tail.last, 3)
  assert.equal(tail.after(2), undefined)
  await say(1)
  await tail.waitForChange(never)
  assert.equal(tail.after(3)?.length, 1)
  tail.close()
})

test('who asks for drafts is told what is written of an answer between the events, others are not', async () => {
  const { say, end, follow, draft, followDrafts } = await world()
  await say(1)
  const others = numbers(follow())
  const stream = followDrafts()
  const next = async () => {
    const { value } = await stream.next()
    return 'text' in value ? `${value.offset} ${value.text}` : value.map(({ sequence }: StreamEvent) => sequence)
  }
  assert.deepEqual(await next(), [1])
  draft(1, 0, 'The ')
  assert.equal(await next(), '0 The ')
  draft(1, 4, 'reef')
  draft(1, 8, ' is')
  assert.equal(await next(), '4 reef is')
  const late = followDrafts()
  assert.deepEqual((await late.next()).value.length, 1)
  assert.deepEqual((await late.next()).value, { offset: 0, text: 'The reef is' })
  draft(1, 11, ' alive')
  await say(1)
  // Of the answer that is whole now, and of the next one, whose event before is not known yet.
  draft(1, 17, '!')
  draft(2, 0, 'And ')
  const told: unknown[] = []
  while (told.at(-1) !== '0 And ') told.push(await next())
  assert.deepEqual(told.at(-2), [2])
  await end()
  assert.equal((await stream.next()).done, true)
  assert.deepEqual(await others, [1, 2])
})

test('a draft is kept for who comes back within half a minute, alone as it was', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] })
  const { say, draft, followDrafts, streams, id, reads } = await world()
  await say(1)
  const leave = async (stream: ReturnType<typeof followDrafts>, text: string) => {
    assert.equal((await stream.next()).value.length, 1)
    assert.deepEqual((await stream.next()).value, { offset: 0, text })
    await stream.return(undefined)
  }
  const first = followDrafts()
  assert.equal((await first.next()).value.length, 1)
  draft(1, 0, 'The ')
  assert.deepEqual((await first.next()).value, { offset: 0, text: 'The ' })
  await first.return(undefined)
  draft(1, 4, 'reef')
  await turn()
  t.mock.timers.tick(29_000)
  await leave(followDrafts(), 'The reef')
  t.mock.timers.tick(29_000)
  await leave(followDrafts(), 'The reef')
  t.mock.timers.tick(31_000)
  assert.equal(await streams.head(id), undefined)
  const { count } = reads
  t.mock.timers.tick(100_000)
  await turn()
  assert.equal(reads.count, count)
})

test('streams that are closed keep no draft', async () => {
  const { say, draft, followDrafts, streams, id } = await world()
  await say(1)
  const stream = followDrafts()
  await stream.next()
  draft(1, 0, 'The ')
  await stream.next()
  streams.close()
  await stream.return(undefined)
  assert.equal(await streams.head(id), undefined)
})

test('a draft never comes before the events that it follows, and none is told of an answer that is whole', async () => {
  const { say, sayUnheard, end, draft, followDrafts } = await world()
  await say(1)
  const stream = followDrafts()
  await stream.next()
  await sayUnheard(1)
  draft(2, 0, 'waits')
  await turn()
  await turn()
  await say(1)
  const seen: unknown[] = []
  const read = (async () => {
    for await (const batch of stream) seen.push('text' in batch ? batch.text : batch.map(({ sequence }) => sequence))
  })()
  await end()
  await read
  assert.deepEqual(seen.flat(), [2, 3])
})
