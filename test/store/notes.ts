/** Migrations of a table with many rows. */
import { Kysely, sql } from 'kysely'
import { defined } from '../../src/lib/defined.ts'
import { type Backend, postgresBackend } from '../../src/store/connection.ts'
import { migrate, type MigrateOptions, type Migrations } from '../../src/store/migrations/index.ts'

/** Nine batches of the backfill. */
export const noteCount = 8500

/** `begun` is called for each batch before its commit. */
export function noteMigrations(begun: (after: string | undefined) => void | Promise<void>): Migrations {
  return {
    '0001-notes': {
      async up(db) {
        await sql`create table notes (id text collate "C" primary key, text text not null)`.execute(db)
        await sql`insert into notes select lpad(n::text, 8, '0'), repeat('x', n % 7) from generate_series(1, ${noteCount}::integer) n`.execute(
          db,
        )
      },
    },
    '0002-lengths': {
      async up(db) {
        await sql`alter table notes add column length integer`.execute(db)
        await sql`alter table notes add column fillings integer not null default 0`.execute(db)
      },
      async backfill(db, { after = '', limit }) {
        await begun(after === '' ? undefined : after)
        const { rows } = await sql<{ id: string }>`
          with batch as (select id from notes where id > ${after} order by id limit ${limit})
          update notes set length = length(text), fillings = fillings + 1 from batch where notes.id = batch.id
          returning notes.id`.execute(db)
        const last = rows
          .map(({ id }) => id)
          .toSorted()
          .at(-1)
        return last === undefined ? undefined : { last, rows: rows.length }
      },
    },
    '0003-all-have-a-length': {
      async up(db) {
        await sql`alter table notes alter column length set not null`.execute(db)
      },
    },
  }
}

/** Opens the database of a URL. */
export async function openBackend(location: string, statementTimeoutMs?: number): Promise<Backend & AsyncDisposable> {
  const backend = await postgresBackend(location, { limits: defined({ statementMs: statementTimeoutMs }) })
  return Object.assign(backend, { [Symbol.asyncDispose]: () => backend.stop() })
}

export async function migrateOn(backend: Backend, options: MigrateOptions): Promise<void> {
  const db = new Kysely<unknown>({ dialect: backend.unlimited() })
  try {
    await migrate(db, options)
  } finally {
    await db.destroy()
  }
}
