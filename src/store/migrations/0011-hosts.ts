import { sql, type Kysely } from 'kysely'

/**
 * Which host has a sandbox, a checkpoint or a session: the id of its installation. So far all are this installation's own. The value
 * comes as a default of the new column, which PostgreSQL stores once instead of rewriting each row. In a database without an
 * installation the column stays null until `insertInstallation`.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  const { rows } = await sql<{ id: string }>`select id from installation`.execute(db)
  const ownHost = sql.lit(rows[0]?.id ?? null)
  for (const name of ['sandboxes', 'checkpoints', 'sessions']) {
    const table = sql.table(name)
    await sql`alter table ${table} add column host_id text collate "C" default ${ownHost}`.execute(db)
    await sql`alter table ${table} alter column host_id drop default`.execute(db)
  }
}
