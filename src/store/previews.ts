import { sql } from 'kysely'
import type { Kysely } from 'kysely'
import type { PreviewDeclaration, SslStatus } from '../sandbox/preview.ts'
import type { SandboxStore } from '../sandbox/store.ts'
import { present } from './rows.ts'
import type { Database } from './schema.ts'
import { strict } from './text.ts'

export type PreviewStore = Pick<
  SandboxStore,
  'putPreview' | 'setSslStatus' | 'preview' | 'previewByHostname' | 'listPreviews' | 'deletePreview'
>

const settings = ['customHostname', 'authScheme', 'tokenHash'] as const
/** A certificate belongs to the host name, so its status lasts as long as that. */
const sslStatusOfName = sql<SslStatus>`
  case when previews.custom_hostname is not distinct from excluded.custom_hostname
  then previews.ssl_status else excluded.ssl_status end`

export function previewStore(db: Kysely<Database>): PreviewStore {
  return {
    async putPreview(declaration) {
      const { customHostname } = declaration
      const row = await db
        .insertInto('previews')
        .values({
          ...declaration,
          customHostname: customHostname === undefined ? null : strict(customHostname, 'domain'),
        })
        .onConflict((conflict) => conflict.constraint('previews_port').doUpdateSet(updated(declaration)))
        .returningAll()
        // A row version that nobody has locked or replaced was inserted by this statement.
        .returning(sql<boolean>`xmax = 0`.as('created'))
        .executeTakeFirstOrThrow()
      const { created, ...preview } = row
      return { preview: present(preview), created }
    },

    async setSslStatus({ sandboxId, port, customHostname }, sslStatus, from) {
      const { numUpdatedRows } = await db
        .updateTable('previews')
        .set({ sslStatus })
        .where('sandboxId', '=', sandboxId)
        .where('port', '=', port)
        .where('customHostname', 'is not distinct from', customHostname ?? null)
        .where('sslStatus', 'in', from)
        .executeTakeFirstOrThrow()
      return numUpdatedRows > 0n
    },

    async preview(sandboxId, port) {
      const row = await db
        .selectFrom('previews')
        .selectAll()
        .where('sandboxId', '=', sandboxId)
        .where('port', '=', port)
        .executeTakeFirst()
      return row && present(row)
    },

    async previewByHostname(customHostname) {
      const row = await db
        .selectFrom('previews')
        .selectAll()
        .where('customHostname', '=', customHostname)
        .executeTakeFirst()
      return row && present(row)
    },

    async listPreviews(sandboxId) {
      const rows = await db
        .selectFrom('previews')
        .selectAll()
        .where('sandboxId', '=', sandboxId)
        .orderBy('port')
        .execute()
      return rows.map(present)
    },

    async deletePreview(sandboxId, port) {
      const { numDeletedRows } = await db
        .deleteFrom('previews')
        .where('sandboxId', '=', sandboxId)
        .where('port', '=', port)
        .executeTakeFirstOrThrow()
      return numDeletedRows > 0n
    },
  }
}

/** The columns of an update. The row under it decides, so that updates of one port at the same time lose nothing of each other. */
function updated(declaration: PreviewDeclaration) {
  const named = settings.filter((column) => column in declaration)
  return {
    orgId: sql.ref<string>('excluded.orgId'),
    ...Object.fromEntries(named.map((column) => [column, sql.ref(`excluded.${column}`)])),
    ...('customHostname' in declaration ? { sslStatus: sslStatusOfName } : {}),
  }
}
