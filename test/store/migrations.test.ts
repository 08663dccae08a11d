/** Migrations that take long. */
import assert from 'node:assert/strict'
import { createInterface } from 'node:readline'
import { after, before, suite, test } from 'node:test'
import { Kysely, sql, type RawBuilder } from 'kysely'
import { isServiceError, ServiceError } from '../../src/errors.ts'
import { silentLog, type Log } from '../../src/lib/log.ts'
import type { Backend } from '../../src/store/connection.ts'
import { translated } from '../../src/store/errors.ts'
import { openStore } from '../../src/store/index.ts'
import { killed, startChild } from './child.ts'
import { refuses } from '../../src/lib/testing/refuses.ts'
import { cutConnections, execute, freshDatabase } from './kit.ts'
import { migrateOn, noteCount, noteMigrations, openBackend } from './notes.ts'

interface Note {
  length: number
  fillings: number
}

async function rowsOf<Row>(backend: Backend, query: RawBuilder<Row>): Promise<Row[]> {
  const db = new Kysely<unknown>({ dialect: backend.unlimited() })
  const { rows } = await query.execute(db)
  await db.destroy()
  return rows
}

const readNotes = (backend: Backend) => rowsOf(backend, sql<Note>`select length, fillings from notes order by id`)

async function hasTable(backend: Backend, name: string): Promise<boolean> {
  const [row] = await rowsOf(backend, sql<{ there: boolean }>`select to_regclass(${name}) is not null as there`)
  return row?.there === true
}

function migrationTests(name: string, place: () => Promise<string>): void {
  suite(`migrations: ${name}`, () => {
    test('backfill: a killed one continues with its last batch, and later migrations wait', async () => {
      const where = await place()
      const child = startChild('migrate', where)
      const begun: string[] = []
      for await (const line of createInterface({ input: child.stdout })) {
        begun.push(line)
        if (begun.length === 4) child.kill('SIGKILL')
      }
      await killed(child)
      assert.equal(child.signalCode, 'SIGKILL')
      assert.deepEqual(begun.slice(0, 4), ['start', '00001000', '00002000', '00003000'])

      const resumed: (string | undefined)[] = []
      await using backend = await openBackend(where)
      const migrations = noteMigrations((key) => void resumed.push(key))
      await migrateOn(backend, { migrations })
      // The batch that the kill met is done again, or was just committed.
      assert.ok(Number(resumed[0]) >= 3000, `it went on after ${resumed[0]}`)
      assert.equal(resumed.length, 10 - Number(resumed[0]) / 1000)
      const rows = await readNotes(backend)
      assert.equal(rows.length, noteCount)
      assert.ok(rows.every(({ length, fillings }, index) => length === (index + 1) % 7 && fillings === 1))

      resumed.length = 0
      await migrateOn(backend, { migrations })
      assert.deepEqual(resumed, [])
    })

    test('backfill: a failed one names its migration and keeps the earlier batches', async () => {
      await using backend = await openBackend(await place())
      let batches = 0
      const failing = noteMigrations(() => {
        if (++batches === 3) throw new Error('no more')
      })
      await assert.rejects(migrateOn(backend, { migrations: failing }), /could not be migrated \(0002-lengths\)/)
      const rows = await readNotes(backend)
      assert.equal(rows.filter(({ fillings }) => fillings === 1).length, 2000)
      const left: (string | undefined)[] = []
      await migrateOn(backend, { migrations: noteMigrations((key) => void left.push(key)) })
      assert.equal(left[0], '00002000')
    })

    test('migration: nothing is committed once another server has the database', async () => {
      await using backend = await openBackend(await place())
      let isOurs = true
      const check = () => {
        if (!isOurs) throw new ServiceError('unavailable', 'it is of another')
      }
      const losing = noteMigrations((key) => {
        if (key === '00001000') isOurs = false
      })
      await refuses(migrateOn(backend, { migrations: losing, check }), 'unavailable')
      const rows = await readNotes(backend)
      assert.equal(rows.filter(({ fillings }) => fillings === 1).length, 1000)
      const more = { ...noteMigrations(() => undefined), '0004-more': { up: (db: Kysely<unknown>) => makeMore(db) } }
      isOurs = true
      await migrateOn(backend, { migrations: noteMigrations(() => undefined) })
      isOurs = false
      await assert.rejects(migrateOn(backend, { migrations: more, check }), /it is of another/)
      assert.equal(await hasTable(backend, 'more'), false)
    })

    test('migration: each one of a used database is logged, with its backfill', async () => {
      await using backend = await openBackend(await place())
      const lines: string[] = []
      const log: Log = {
        ...silentLog,
        info: (facts, message) => {
          const { migration, backfill, rows } = facts as { migration?: string; backfill?: string; rows?: number }
          lines.push([migration ?? backfill, rows, message].filter((part) => part !== undefined).join(' '))
        },
      }
      const migrations = noteMigrations(() => undefined)
      const { '0001-notes': first, ...others } = migrations
      assert.ok(first)
      await migrateOn(backend, { migrations: { '0001-notes': first }, log })
      assert.deepEqual(lines, [], 'a new database has nothing to tell')
      await migrateOn(backend, { migrations: { '0001-notes': first, ...others }, log })
      assert.deepEqual(lines, [
        '0002-lengths a migration of the database begins',
        '0002-lengths a migration of the database is done',
        '0002-lengths 1000 a backfill of the database runs',
        '0002-lengths 8500 a backfill of the database is done',
        '0003-all-have-a-length a migration of the database begins',
        '0003-all-have-a-length a migration of the database is done',
      ])
    })
  })
}

async function makeMore(db: Kysely<unknown>): Promise<void> {
  await sql`create table more (id integer)`.execute(db)
}

const drops: (() => Promise<void>)[] = []
after(async () => {
  for (const drop of drops) await drop()
})

migrationTests('PostgreSQL', async () => {
  const { url, drop } = await freshDatabase()
  drops.push(drop)
  return url
})

suite('migrations of a database on a server', () => {
  let url: string
  let drop: () => Promise<void>
  before(async () => ({ url, drop } = await freshDatabase()))
  after(() => drop())

  test('migration: it may take longer than the statement timeout', async () => {
    // On a busy machine an ordinary statement takes tenths of a second.
    const statementMs = 2000
    // As an administrator may have set it for all.
    for (const timeout of ['statement_timeout', 'lock_timeout']) {
      const set = `execute format('alter database %I set ${timeout} = ${statementMs}', current_database())`
      await execute(url, `do $$ begin ${set}; end $$`)
    }
    await using backend = await openBackend(url, statementMs)
    const db = new Kysely<unknown>({ dialect: backend.dialect })
    const takeLong = async (on: Kysely<unknown>) => {
      await sql`select pg_sleep(2.5)`.execute(on)
    }
    try {
      await assert.rejects(takeLong(db), (error) => isServiceError(translated(error), 'unavailable'))
      const between = {
        up: async (on: Kysely<unknown>) => {
          await takeLong(on)
          // An idle transaction has no limit either.
          await takeLong(db).catch(() => undefined)
          await sql`create table long (id integer)`.execute(on)
        },
      }
      await migrateOn(backend, { migrations: { '0001-long': between } })
      assert.equal(await hasTable(backend, 'long'), true)
    } finally {
      await db.destroy()
    }
  })

  test('migration: a cut connection leaves nothing, and the next start applies it', async () => {
    const fresh = await freshDatabase()
    drops.push(fresh.drop)
    await using backend = await openBackend(fresh.url)
    let isCut = false
    const up = async (on: Kysely<unknown>) => {
      await makeMore(on)
      if (!isCut) await cutConnections(fresh.url, 'atoll migration')
      isCut = true
      await sql`insert into more values (1)`.execute(on)
    }
    await refuses(migrateOn(backend, { migrations: { '0001-more': { up } } }), 'unavailable')
    assert.equal(await hasTable(backend, 'more'), false)
    await migrateOn(backend, { migrations: { '0001-more': { up } } })
    assert.equal(await hasTable(backend, 'more'), true)
  })

  test('migration: an open store has no connection for migrations left', async () => {
    const fresh = await freshDatabase()
    drops.push(fresh.drop)
    await using store = await openStore(fresh.url)
    await store.ping()
    await execute(
      fresh.url,
      // The process of a closed connection ends in its own time.
      `do $$ begin for attempt in 1..6000 loop
          perform pg_stat_clear_snapshot();
          if not exists (
            select 1 from pg_stat_activity where datname = current_database() and application_name = 'atoll migration'
          ) then return; end if;
          perform pg_sleep(0.01);
        end loop; raise exception 'a connection is left'; end $$`,
    )
  })
})
