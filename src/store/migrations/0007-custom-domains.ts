import { sql } from 'kysely'
import type { Kysely } from 'kysely'

/**
 * A domain is served when its proof was seen; until then any number of organisations may name it. Those of before were never
 * proven, so they wait for it like new ones.
 */
const statements = [
  'alter table previews add column verified_at timestamptz(3)',
  'alter table previews drop constraint previews_custom_hostname',
  'alter table previews add constraint previews_own_hostname unique (org_id, custom_hostname)',
  'create unique index previews_verified_hostname on previews (custom_hostname) where verified_at is not null',
  `create index previews_unverified on previews (org_id, created_at)
    where custom_hostname is not null and verified_at is null`,
  `update previews set ssl_status = 'pending' where custom_hostname is not null`,
]

export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statement of statements) await sql.raw(statement).execute(db)
}
