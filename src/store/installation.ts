import { sql } from 'kysely'
import type { Kysely } from 'kysely'
import type { Database } from './schema.ts'

/** The installation that a database belongs to; it may be empty, or of a version that knew none. */
export async function readInstallation(db: Kysely<Database>): Promise<string | undefined> {
  const { rows } = await sql<{ there: boolean }>`select to_regclass('installation') is not null as there`.execute(db)
  if (rows[0]?.there !== true) return undefined
  return (await db.selectFrom('installation').select('id').executeTakeFirst())?.id
}

/** Harmless when the database has one already, which stays. */
export async function insertInstallation(db: Kysely<Database>, id: string): Promise<void> {
  await db
    .insertInto('installation')
    .values({ id })
    .onConflict((conflict) => conflict.doNothing())
    .execute()
}
