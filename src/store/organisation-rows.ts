import { sql, type Kysely } from 'kysely'
import { ServiceError } from '../errors.ts'
import type { Database } from './schema.ts'

/** Their rows have data beside the database, which the services remove with them. */
const ownedByServices = [
  'checkpoints',
  'image_layers',
  'images',
  'previews',
  'sandboxes',
  'sessions',
  'volume_snapshots',
  'volumes',
]
/** What has been done stays on record. */
const isKept = (table: string) => table.startsWith('audit_')
/** Rows of one statement, so that others use the database in between. */
const rowsAtOnce = 5000

/**
 * Deletes all rows of an organisation in any table that names one, so that a table which is added later is not forgotten. Throws `conflict` while
 * a service has to remove something first.
 */
export async function deleteOrganisationRows(db: Kysely<Database>, orgId: string): Promise<void> {
  const { rows: tables } = await sql<{ name: string }>`
    select table_name as name from information_schema.columns join information_schema.tables using (table_schema, table_name)
    where table_schema = current_schema() and column_name = 'org_id' and table_type = 'BASE TABLE'
    order by table_name`.execute(db)
  const names = tables.map(({ name }) => name)
  for (const name of names.filter((table) => ownedByServices.includes(table))) {
    const { rows } = await sql`select from ${sql.id(name)} where org_id = ${orgId} limit 1`.execute(db)
    if (rows.length > 0) throw new ServiceError('conflict', `the organisation still has ${name.replaceAll('_', ' ')}`)
  }
  for (const name of names) {
    if (ownedByServices.includes(name) || isKept(name)) continue
    for (let count = rowsAtOnce; count >= rowsAtOnce;) {
      const { numAffectedRows = 0n } = await sql`
        delete from ${sql.id(name)} where ctid = any(array(
          select ctid from ${sql.id(name)} where org_id = ${orgId} limit ${rowsAtOnce}))`.execute(db)
      count = Number(numAffectedRows)
    }
  }
  await db.deleteFrom('organisations').where('id', '=', orgId).where('isDefault', '=', false).execute()
}
