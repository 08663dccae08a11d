import { sql, type ExpressionBuilder, type Kysely } from 'kysely'
import { previewEntry } from '../sandbox/log-entries.ts'
import type { PreviewDeclaration, SslStatus } from '../sandbox/preview.ts'
import type { PreviewDomainKey, SandboxStore } from '../sandbox/ports/sandbox-store.ts'
import type { LogWriter } from './event-log.ts'
import { recordMade } from './idempotency.ts'
import { present } from './rows.ts'
import type { Database } from './schema.ts'
import { strict } from './text.ts'

const settings = ['customHostname', 'authScheme', 'tokenHash'] as const
/** The columns of certificate and proof keep their values only while the host name stays. */
const sslStatusOfName = sql<SslStatus>`
  case when previews.custom_hostname is not distinct from excluded.custom_hostname
  then previews.ssl_status else excluded.ssl_status end`

const verifiedAtOfName = sql<Date | null>`
  case when previews.custom_hostname is not distinct from excluded.custom_hostname then previews.verified_at end`

export function previewStore(db: Kysely<Database>, writer: LogWriter) {
  return {
    async putPreview(declaration, url, creation) {
      const { customHostname } = declaration
      const row = await writer.transaction(db, async (transaction, note) => {
        const put = await transaction
          .insertInto('previews')
          .values({
            ...declaration,
            customHostname: customHostname === undefined ? null : strict(customHostname, 'domain'),
          })
          .onConflict((conflict) => conflict.constraint('previews_port').doUpdateSet(updated(declaration)))
          .returningAll()
          // A row version with `xmax = 0` was inserted, not updated, by this statement.
          .returning(sql<boolean>`xmax = 0`.as('created'))
          .executeTakeFirstOrThrow()
        await recordMade(transaction, creation, put.id)
        note(put.orgId, previewEntry(put, url))
        return put
      })
      const { created, ...preview } = row
      return { preview: present(preview), created }
    },

    async setSslStatus(preview, sslStatus, from) {
      const { numUpdatedRows } = await db
        .updateTable('previews')
        .set({ sslStatus })
        .where(isOf(preview))
        .where('sslStatus', 'in', from)
        .executeTakeFirstOrThrow()
      return numUpdatedRows > 0n
    },

    async verifyPreview(preview, verifiedAt, holder) {
      return await db.transaction().execute(async (transaction) => {
        // Lock first: the holder must not lose its name to a deleted preview.
        const found = await transaction.selectFrom('previews').select('id').where(isOf(preview)).forUpdate().execute()
        if (found.length === 0) return false
        if (holder !== undefined) {
          const lost = { verifiedAt: null, sslStatus: 'pending' } as const
          await transaction.updateTable('previews').set(lost).where(isOf(holder)).execute()
        }
        await transaction.updateTable('previews').set({ verifiedAt }).where(isOf(preview)).execute()
        return true
      })
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

    async previewByHostname(customHostname, orgId) {
      const query = db.selectFrom('previews').selectAll().where('customHostname', '=', customHostname)
      const row = await (
        orgId === undefined ? query.where('verifiedAt', 'is not', null) : query.where('orgId', '=', orgId)
      ).executeTakeFirst()
      return row && present(row)
    },

    async unverifiedPreviews(limit, orgId) {
      let query = db
        .selectFrom('previews')
        .innerJoin('sandboxes', 'sandboxes.id', 'previews.sandboxId')
        .selectAll('previews')
        .where('sandboxes.status', '<>', 'stopped')
        .where('previews.customHostname', 'is not', null)
        .where('previews.verifiedAt', 'is', null)
      if (orgId !== undefined) query = query.where('previews.orgId', '=', orgId)
      const rows = await query.orderBy('previews.createdAt').orderBy('previews.id').limit(limit).execute()
      return rows.map(present)
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
      return await writer.transaction(db, async (transaction, note) => {
        const deleted = await transaction
          .deleteFrom('previews')
          .where('sandboxId', '=', sandboxId)
          .where('port', '=', port)
          .returning(['orgId', 'sandboxId', 'port'])
          .executeTakeFirst()
        if (deleted !== undefined) note(deleted.orgId, previewEntry(deleted, null))
        return deleted !== undefined
      })
    },
  } satisfies Partial<SandboxStore>
}

/** The columns of an update, computed from the stored row, so that concurrent updates of one port lose nothing. */
function updated(declaration: PreviewDeclaration) {
  const named = settings.filter((column) => column in declaration)
  return {
    orgId: sql.ref<string>('excluded.orgId'),
    ...Object.fromEntries(named.map((column) => [column, sql.ref(`excluded.${column}`)])),
    ...('customHostname' in declaration ? { sslStatus: sslStatusOfName, verifiedAt: verifiedAtOfName } : {}),
  }
}

/** Matches the preview of this port while it has this (or no) custom host name. */
function isOf({ sandboxId, port, customHostname }: PreviewDomainKey) {
  return (eb: ExpressionBuilder<Database, 'previews'>) =>
    eb.and([
      eb('sandboxId', '=', sandboxId),
      eb('port', '=', port),
      eb('customHostname', 'is not distinct from', customHostname ?? null),
    ])
}
