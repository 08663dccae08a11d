/** The bounds of a store: connections, waiting calls, and the time of statements. */
import assert from 'node:assert/strict'
import { after, before, suite, test } from 'node:test'
import pg from 'pg'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { isServiceError } from '../../src/errors.ts'
import { acting } from '../../src/events/index.ts'
import { silentLog } from '../../src/lib/log.ts'
import { openStore } from '../../src/store/index.ts'
import { freshDatabase, newOrganisation, sandboxOf } from './kit.ts'

suite('limits of a store', () => {
  let url: string
  let drop: () => Promise<void>
  before(async () => ({ url, drop } = await freshDatabase()))
  after(() => drop())

  /** A connection that keeps everybody else from a table until it ends. */
  async function locking(table: string): Promise<AsyncDisposable> {
    const client = new pg.Client({ connectionString: url })
    client.on('error', () => undefined)
    await client.connect()
    await client.query(`begin; lock table ${table} in access exclusive mode`)
    return { [Symbol.asyncDispose]: () => client.end() }
  }

  /** Waits until so many statements of the store wait for a lock. */
  async function blocked(count: number): Promise<void> {
    const client = new pg.Client({ connectionString: url })
    await client.connect()
    const waiting = `select 1 from pg_stat_activity
      where datname = current_database() and application_name = 'atoll' and wait_event_type = 'Lock'`
    await eventually(async () => (await client.query(waiting)).rowCount === count)
    await client.end()
  }

  test('connections: they are as many as allowed, further calls wait, and beyond the bound they are refused at once', async () => {
    await using store = await openStore(url, { limits: { connectionsMax: 2, waitingMax: 3 } })
    const { id: orgId } = await newOrganisation(store)
    const insert = () => store.sandboxes.insertSandbox(sandboxOf(orgId))
    const calls: Promise<unknown>[] = []
    {
      await using held = new AsyncDisposableStack()
      held.use(await locking('sandboxes'))
      calls.push(insert(), insert())
      await blocked(2)
      for (let count = 0; count < 3; count++) calls.push(insert())
      await assert.rejects(insert(), (error) => {
        assert.ok(isServiceError(error, 'unavailable'))
        assert.match(error.message, /the database is busy: 3 calls wait for a connection/)
        return true
      })
    }
    await Promise.all(calls)
    assert.equal((await store.sandboxes.sandboxCounts()).running, 5)
    await insert()
  })

  test('connections: an organisation whose calls have all that it may leaves others theirs, and is refused before them', async () => {
    await using store = await openStore(url, { limits: { connectionsMax: 5, waitingMax: 8 } })
    const greedy = await newOrganisation(store)
    const other = await newOrganisation(store)
    const as = <Result>(orgId: string, work: () => Result) =>
      acting({ actor: { type: 'key' }, cause: 'request', orgId }, work)
    const insert = () => as(greedy.id, () => store.sandboxes.insertSandbox(sandboxOf(greedy.id)))
    const read = () => as(other.id, () => store.organisations.organisations())
    const calls: Promise<unknown>[] = []
    {
      await using held = new AsyncDisposableStack()
      held.use(await locking('sandboxes'))
      for (let count = 0; count < 4; count++) calls.push(insert())
      await blocked(4)
      for (let count = 0; count < 4; count++) calls.push(insert())
      await assert.rejects(insert(), (error) => {
        assert.ok(isServiceError(error, 'rate_limited'))
        assert.match(error.message, /4 calls of the organisation wait for the database/)
        return true
      })
      await read()
      assert.equal((await read()).length > 0, true)
    }
    await Promise.all(calls)
  })

  test('statement: one that takes longer than it may is ended, with a message that says so, and its connection goes on', async () => {
    // On a busy machine an ordinary statement takes tenths of a second.
    await using store = await openStore(url, { limits: { connectionsMax: 1, statementMs: 2000 } })
    const { id: orgId } = await newOrganisation(store)
    {
      await using held = new AsyncDisposableStack()
      held.use(await locking('sandboxes'))
      await assert.rejects(store.sandboxes.insertSandbox(sandboxOf(orgId)), (error) => {
        assert.ok(isServiceError(error, 'unavailable'))
        assert.match(error.message, /took longer than it may/)
        return true
      })
    }
    await store.sandboxes.insertSandbox(sandboxOf(orgId))
  })

  test('statement: a slow one is logged with the call that it belongs to, its time and its text without values', async () => {
    const logged: { facts: Record<string, unknown>; message: string }[] = []
    const warn = (facts: object, message: string) => logged.push({ facts: { ...facts }, message })
    await using store = await openStore(url, { log: { ...silentLog, warn }, limits: { slowStatementMs: 0 } })
    const { id: orgId } = await newOrganisation(store)
    logged.length = 0
    await Promise.all([
      store.sandboxes.insertSandbox(sandboxOf(orgId, { image: 'a secret' })),
      store.organisations.defaultOrganisation(),
    ])
    assert.ok(logged.every(({ message }) => message === 'a statement of the database was slow'))
    const of = (call: string) => logged.filter(({ facts }) => facts['call'] === call)
    const insert = of('sandboxes.insertSandbox').find(({ facts }) =>
      String(facts['sql']).includes('insert into "sandboxes"'),
    )
    assert.ok(insert !== undefined, JSON.stringify(logged))
    assert.ok(Number(insert.facts['ms']) >= 0)
    assert.match(String(of('organisations.defaultOrganisation')[0]?.facts['sql']), /"organisations"/)
    assert.doesNotMatch(JSON.stringify(logged), /a secret/)
  })

  test('statement: a quick one is not logged', async () => {
    const logged: string[] = []
    const warn = (_facts: object, message: string) => logged.push(message)
    await using store = await openStore(url, { log: { ...silentLog, warn }, limits: { slowStatementMs: 3_600_000 } })
    await newOrganisation(store)
    assert.deepEqual(logged, [])
  })
})
