import assert from 'node:assert/strict'
import { createInterface } from 'node:readline'
import { after, before, suite, test } from 'node:test'
import type { LogEvent } from '../../src/events/index.ts'
import { openStore, type Store } from '../../src/store/index.ts'
import { logGuard } from '../support/log-guard.ts'
import { killed, startChild } from './child.ts'
import { execute, freshDatabase, newOrganisation, sandboxOf } from './kit.ts'

/** Commits of these events take a while, the earlier ones longer than those that come behind them. */
const slowCommits = `create function commit_slowly() returns trigger language plpgsql as $$
  begin
    perform pg_sleep(case new.number % 5 when 1 then 0.08 when 2 then 0.02 else 0 end);
    return null;
  end
$$;
create constraint trigger slow_commits after insert on events deferrable initially deferred
  for each row execute function commit_slowly()`

suite('order of events', () => {
  let url: string
  let drop: () => Promise<void>
  before(async () => {
    ;({ url, drop } = await freshDatabase())
    await (await openStore(url)).close()
    await execute(url, logGuard)
  })
  after(() => drop())

  async function all(store: Store, orgId: string): Promise<LogEvent[]> {
    const events: LogEvent[] = []
    for (;;) {
      const page = await store.events.page(orgId, { after: events.length, limit: 1000, filter: {} })
      events.push(...page.events)
      if (page.next >= page.newest) return events
    }
  }

  test('events: no commit, however slow, appears behind a reader, and none is missing', async () => {
    await using store = await openStore(url)
    await execute(url, slowCommits)
    const { id: orgId } = await newOrganisation(store)
    let isWriting = true
    const writers = Promise.all(
      Array.from({ length: 6 }, async () => {
        for (let made = 0; made < 12; made++) {
          const sandbox = sandboxOf(orgId, { status: 'creating' })
          await store.sandboxes.insertSandbox(sandbox)
          await store.sandboxes.updateSandbox(sandbox.id, { status: 'stopped' })
        }
      }),
    ).finally(() => (isWriting = false))
    const seen: LogEvent[] = []
    for (let isLast = false; !isLast;) {
      isLast = !isWriting
      const { events, next } = await store.events.page(orgId, { after: seen.length, limit: 7, filter: {} })
      for (const event of events) {
        assert.equal(event.number, seen.length + 1)
        seen.push(event)
      }
      assert.equal(next, seen.length)
      isLast &&= events.length === 0
    }
    await writers
    assert.equal(seen.length, 72)
    assert.deepEqual(await all(store, orgId), seen)
    const times = seen.map(({ ts }) => ts.getTime())
    assert.deepEqual(
      times,
      times.toSorted((one, other) => one - other),
      'times grow with numbers',
    )
    await execute(url, 'drop trigger slow_commits on events')
  })

  test('events: a writer that is killed leaves no change without its event, and no event without its change', async () => {
    let store = await openStore(url)
    const { id: orgId } = await newOrganisation(store)
    const acknowledged = new Map<string, string>()
    for (const lines of [1, 40, 90]) {
      await store.close()
      const child = startChild('live', url, orgId)
      let count = 0
      for await (const line of createInterface({ input: child.stdout })) {
        const [id = '', status = ''] = line.split(' ')
        acknowledged.set(id, status)
        if ((count += 1) === lines) child.kill('SIGKILL')
      }
      await killed(child)
      store = await openStore(url)
      const events = await all(store, orgId)
      assert.deepEqual(
        events.map(({ number }) => number),
        Array.from(events, (_, index) => index + 1),
      )
      const told = new Map(events.map(({ subject, type }) => [subject, type as string]))
      const records = await store.sandboxes.sandboxesIn(['running', 'hibernated', 'stopped'])
      const own = records.filter((record) => record.orgId === orgId)
      assert.deepEqual(new Set(told.keys()), new Set(own.map(({ id }) => id)))
      const last = { hibernated: /hibernated$/, running: /ready$|resumed$/, stopped: /stopped$/ } as const
      for (const { id, status } of own) assert.match(told.get(id) ?? '', last[status as keyof typeof last], status)
      for (const id of acknowledged.keys()) assert.ok(told.has(id), `the event of ${id} is gone`)
    }
    await store.close()
  })
})
