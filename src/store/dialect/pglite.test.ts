import assert from 'node:assert/strict'
import { once } from 'node:events'
import { cp, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, beforeEach, suite, test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { PGlite } from '@electric-sql/pglite'
import { Kysely, sql } from 'kysely'
import { isServiceError } from '../../errors.ts'
import { openStore } from '../index.ts'
import { maintain } from './pglite-maintenance.ts'
import { pgliteDialect } from './pglite.ts'
import { EmbeddedDatabaseError, PgliteThread, type PgliteThreadOptions } from './pglite-thread.ts'

const imageDir = process.env['ATOLL_IMAGE_DIR'] || '/var/lib/atoll/images'

interface Tables {
  notes: { id: number; text: string }
}

interface Opened {
  thread: PgliteThread
  db: Kysely<Tables>
}

suite('the embedded database', () => {
  let folder: string
  let copies = 0
  /** Of the tests that want no database of their own. */
  let shared: Opened
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'atoll-thread-'))
    await (await openStore({ dataDir: folder, imageDir })).close()
    shared = await open()
  })
  beforeEach(() => shared.db.deleteFrom('notes').execute())
  after(async () => {
    await shared.thread.close()
    await rm(folder, { recursive: true })
  })

  async function open(options: PgliteThreadOptions = {}): Promise<Opened> {
    const copy = join(folder, String(++copies))
    await cp(join(folder, 'db'), copy, { recursive: true })
    const thread = await PgliteThread.open(copy, options)
    const db = new Kysely<Tables>({ dialect: pgliteDialect(thread) })
    await sql`create table notes (id integer constraint notes_pkey primary key, text text not null)`.execute(db)
    return { thread, db }
  }

  test('PGlite thread: values arrive unchanged', async () => {
    const { db } = shared
    const day = new Date('2026-01-15T10:30:00.123Z')
    const { rows } =
      await sql`select ${9_007_199_254_740_991}::bigint as big, count(*) as count, ${day}::timestamptz(3) as time,
      ${JSON.stringify({ __proto__x: [1, null, { ü: '😀' }] })}::jsonb as json, ${Buffer.from([0, 255, 7])}::bytea as bytes,
      ${['a', 'b,"']}::text[] as list, null as nothing, true as yes, 0.5::float8 as half`.execute(db)
    assert.deepEqual(rows, [
      {
        big: 9_007_199_254_740_991,
        count: 1,
        time: day,
        json: { __proto__x: [1, null, { ü: '😀' }] },
        bytes: new Uint8Array([0, 255, 7]),
        list: ['a', 'b,"'],
        nothing: null,
        yes: true,
        half: 0.5,
      },
    ])
  })

  test("PGlite thread: an error keeps PostgreSQL's fields, and no values of the statement", async () => {
    const { db } = shared
    const insert = () => db.insertInto('notes').values({ id: 1, text: 'a secret' }).execute()
    await insert()
    await assert.rejects(insert(), (error) => {
      assert.ok(error instanceof EmbeddedDatabaseError)
      const { message, code, constraint, detail, severity } = error as unknown as Record<string, unknown>
      assert.equal(message, 'duplicate key value violates unique constraint "notes_pkey"')
      assert.deepEqual([code, constraint, severity], ['23505', 'notes_pkey', 'ERROR'])
      assert.equal(detail, 'Key (id)=(1) already exists.')
      assert.ok(!JSON.stringify(error, Object.getOwnPropertyNames(error)).includes('a secret'))
      return true
    })
  })

  test('PGlite thread: concurrent transactions run one after another, and one that throws leaves nothing', async () => {
    const { db } = shared
    const add = (id: number) =>
      db.transaction().execute(async (transaction) => {
        const { count } = await transaction
          .selectFrom('notes')
          .select((eb) => eb.fn.countAll<number>().as('count'))
          .executeTakeFirstOrThrow()
        await transaction
          .insertInto('notes')
          .values({ id, text: String(count) })
          .execute()
        if (id === 3) throw new Error('no third')
      })
    const results = await Promise.allSettled([1, 2, 3, 4].map(add))
    const rows = await db.selectFrom('notes').selectAll().orderBy('id').execute()
    assert.deepEqual(
      results.map(({ status }) => status),
      ['fulfilled', 'fulfilled', 'rejected', 'fulfilled'],
    )
    assert.deepEqual(rows, [
      { id: 1, text: '0' },
      { id: 2, text: '1' },
      { id: 4, text: '2' },
    ])
  })

  test('PGlite thread: a commit after an error within its transaction fails', async () => {
    const { db } = shared
    const committed = db.transaction().execute(async (transaction) => {
      await transaction.insertInto('notes').values({ id: 1, text: '' }).execute()
      await sql`select 1 / 0`.execute(transaction).catch(() => undefined)
    })
    await assert.rejects(committed, { name: 'AbortedTransactionError' })
    assert.deepEqual(await db.selectFrom('notes').selectAll().execute(), [])
  })

  test('PGlite thread: maintenance waits for the open transaction', async () => {
    const { thread, db } = await open({ maintenance: { checkMs: 1, vacuumMs: 0 } })
    const vacuums = async () => {
      const { rows } = await sql<{ count: number }>`select coalesce(sum(vacuum_count), 0)::integer as count
        from pg_stat_all_tables where relname = 'notes'`.execute(db)
      return rows[0]?.count ?? 0
    }
    for (let round = 0; round < 3; round++) {
      await db.transaction().execute(async (transaction) => {
        // A vacuum within a transaction is an error, which would end it.
        for (let id = 0; id < 5; id++) {
          await transaction
            .insertInto('notes')
            .values({ id: round * 5 + id, text: '' })
            .execute()
        }
      })
    }
    while ((await vacuums()) === 0);
    const rows = await db.selectFrom('notes').select('id').execute()
    await thread.close()
    assert.equal(rows.length, 15)
  })

  test('PGlite thread: out of memory, it rejects pending calls, reports its death once, and refuses more calls', async () => {
    const deaths: Error[] = []
    const { thread, db } = await open({ heapMbMax: 48, died: (error) => deaths.push(error) })
    const large = sql`select repeat(md5(n::text), 1000) from generate_series(1, 10000) n`
    const results = await Promise.allSettled([large.execute(db), sql`select 1`.execute(db)])
    for (const result of results) {
      assert.ok(result.status === 'rejected' && isServiceError(result.reason, 'unavailable'))
    }
    assert.equal(deaths.length, 1)
    assert.equal((deaths[0] as NodeJS.ErrnoException).code, 'ERR_WORKER_OUT_OF_MEMORY')
    assert.throws(() => thread.check(), { code: 'unavailable' })
    await thread.close()
  })

  test('PGlite thread: a folder without a database of this version fails the start', async () => {
    const copy = join(folder, 'damaged')
    await cp(join(folder, 'db'), copy, { recursive: true })
    await rm(join(copy, 'global'), { recursive: true })
    const deaths: Error[] = []
    await assert.rejects(PgliteThread.open(copy, { died: (error) => deaths.push(error) }))
    assert.deepEqual(deaths, [])
  })

  suite('maintenance', () => {
    let pglite: PGlite
    before(async () => {
      await cp(join(folder, 'db'), join(folder, 'maintained'), { recursive: true })
      pglite = await PGlite.create(join(folder, 'maintained'))
    })
    after(() => pglite.close())

    async function value(query: string): Promise<number> {
      const { rows } = await pglite.query<{ value: number }>(query)
      return rows[0]!.value
    }

    test('maintenance: a checkpoint follows when the write-ahead log exceeds its limit', async () => {
      const stop = maintain(pglite, { checkMs: 5, walBytesMax: 100_000 })
      try {
        const distance =
          'select pg_wal_lsn_diff(pg_current_wal_lsn(), checkpoint_lsn)::float8 as value from pg_control_checkpoint()'
        await pglite.query('create table filler (text text)')
        for (let round = 0; round < 3; round++) {
          await pglite.query('insert into filler select repeat(md5(n::text), 40) from generate_series(1, 1000) n')
          while ((await value(distance)) > 100_000) await delay(5)
        }
      } finally {
        await stop()
      }
    })

    test('maintenance: a vacuum gives the planner the sizes of the tables', async () => {
      await pglite.query('create table vacuumed as select from generate_series(1, 500)')
      const stop = maintain(pglite, { checkMs: 5, vacuumMs: 0 })
      try {
        while ((await value(`select reltuples as value from pg_class where relname = 'vacuumed'`)) !== 500) {
          await delay(5)
        }
      } finally {
        await stop()
      }
    })

    test('maintenance: a table is analysed when it is new, and again when it has grown to more than twice its size', async () => {
      const known = `select relpages as value from pg_class where relname = 'growing'`
      const fill = () =>
        pglite.query('insert into growing select repeat(md5(n::text), 40) from generate_series(1, 300) n')
      await pglite.query('create table growing (text text)')
      await fill()
      const stop = maintain(pglite, { checkMs: 5 })
      try {
        let pages = 0
        while ((pages = await value(known)) === 0) await delay(5)
        for (let more = 0; more < 3; more++) await fill()
        while ((await value(known)) < 3 * pages) await delay(5)
      } finally {
        await stop()
      }
    })

    test('maintenance: a failed round is a warning, and the next round runs', async () => {
      const stop = maintain({ query: () => Promise.reject(new Error('disk full')) }, { checkMs: 5 })
      try {
        for (let round = 0; round < 2; round++) {
          const [warning] = (await once(process, 'warning')) as [Error & { code?: string }]
          assert.equal(warning.message, 'disk full')
        }
      } finally {
        await stop()
      }
    })
  })
})
