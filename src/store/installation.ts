import { sql, type Kysely } from 'kysely'
import type { Database } from './schema.ts'

/** The installation of a database, which may be empty. */
export async function readInstallation(db: Kysely<Database>): Promise<string | undefined> {
  const { rows } = await sql<{ there: boolean }>`select to_regclass('installation') is not null as there`.execute(db)
  if (rows[0]?.there !== true) return undefined
  return (await db.selectFrom('installation').select('id').executeTakeFirst())?.id
}

/** Does nothing when the database has an installation. */
export async function insertInstallation(db: Kysely<Database>, id: string): Promise<void> {
  await db
    .insertInto('installation')
    .values({ id })
    .onConflict((conflict) => conflict.doNothing())
    .execute()
}

/** The `hostId` of a new record: this installation; null until the database has one. */
export const ownHost = sql<string | null>`(select id from installation)`
