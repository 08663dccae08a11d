import { sql, type Kysely, type Updateable } from 'kysely'
import type { SandboxChange } from '../sandbox/sandbox.ts'
import type { SandboxCounts, SandboxStore, TagKey } from '../sandbox/ports/sandbox-store.ts'
import { checkpointStore } from './checkpoints.ts'
import { recordOutcome } from './idempotency.ts'
import { ownHost } from './installation.ts'
import { decodeCursor, page, anyOf, cleared, ownedBy, present } from './rows.ts'
import { patchStore } from './patches.ts'
import { volumeStore } from './volumes.ts'
import { previewStore } from './previews.ts'
import type { Database, SandboxTable } from './schema.ts'
import { lenient, lenientJson, strict, strictJson } from './text.ts'

/** The whole port; checkpoints, patches and previews have their own files. */
export function sandboxStore(db: Kysely<Database>): SandboxStore {
  return { ...sandboxesAlone(db), ...checkpointStore(db), ...patchStore(db), ...previewStore(db), ...volumeStore(db) }
}

function sandboxesAlone(db: Kysely<Database>) {
  const sandbox: SandboxStore['sandbox'] = async (id, orgId) => {
    const query = db.selectFrom('sandboxes').selectAll().where('id', '=', id).where(ownedBy(orgId))
    const row = await query.executeTakeFirst()
    return row && present(row)
  }

  return {
    sandbox,

    async insertSandbox({ image, envs, metadata, tags, volumes, commandDefaults, reasonMessage, ...rest }) {
      const values = {
        ...rest,
        hostId: ownHost,
        image: strict(image, 'image'),
        envs: strictJson(envs, 'envs'),
        metadata: strictJson(metadata, 'metadata'),
        tags: strictJson(tags, 'tags'),
        volumes: strictJson(volumes, 'volumes'),
        commandDefaults: commandDefaults === undefined ? null : lenientJson(commandDefaults),
        reasonMessage: reasonMessage === undefined ? null : lenient(reasonMessage),
      }
      const insert = (on: Kysely<Database>) => on.insertInto('sandboxes').values(values).execute()
      if (volumes.length === 0) {
        await insert(db)
        return
      }
      const sandboxId = rest.id
      const attachments = volumes.map(({ id: volumeId, path, readOnly }) => ({ sandboxId, volumeId, path, readOnly }))
      await db.transaction().execute(async (transaction) => {
        await insert(transaction)
        await transaction.insertInto('volumeAttachments').values(attachments).execute()
      })
    },

    async listSandboxes({ orgId, statuses, limit, cursor }) {
      const after = cursor === undefined ? undefined : decodeCursor(cursor)
      if (statuses.length === 0) return { items: [] }
      let query = db
        .selectFrom('sandboxes')
        .selectAll()
        .where('orgId', '=', orgId)
        .where('status', 'in', statuses)
        .orderBy('createdAt', 'desc')
        .orderBy('id', 'desc')
        .limit(limit + 1)
      if (after !== undefined) {
        query = query.where((eb) => eb(eb.refTuple('createdAt', 'id'), '<', eb.tuple(after.createdAt, after.id)))
      }
      const rows = await query.execute()
      return page(rows.map(present), limit)
    },

    async sandboxesIn(statuses) {
      if (statuses.length === 0) return []
      const rows = await db.selectFrom('sandboxes').selectAll().where('status', 'in', statuses).orderBy('id').execute()
      return rows.map(present)
    },

    async countSandboxes(orgId, statuses) {
      if (statuses.length === 0) return 0
      const { count } = await db
        .selectFrom('sandboxes')
        .select((select) => select.fn.countAll<number>().as('count'))
        .where('orgId', '=', orgId)
        .where('status', 'in', statuses)
        .executeTakeFirstOrThrow()
      return count
    },

    async sandboxCounts() {
      const rows = await db
        .selectFrom('sandboxes')
        .select((select) => ['status', select.fn.countAll<number>().as('count')])
        .groupBy('status')
        .execute()
      const counts: SandboxCounts = { creating: 0, running: 0, hibernated: 0, stopped: 0, error: 0 }
      for (const { status, count } of rows) counts[status] = count
      return counts
    },

    async updateSandbox(id, change, from, note) {
      if (note !== undefined) {
        return await db.transaction().execute(async (transaction) => {
          const updated = await sandboxStore(transaction).updateSandbox(id, change, from)
          if (updated !== undefined) await recordOutcome(transaction, note, id)
          return updated
        })
      }
      if (from?.length === 0) return undefined
      if (Object.keys(change).length === 0) {
        const unchanged = await sandbox(id)
        return unchanged && (from === undefined || from.includes(unchanged.status)) ? unchanged : undefined
      }
      let query = db.updateTable('sandboxes').set(changed(change)).where('id', '=', id)
      if (from !== undefined) query = query.where('status', 'in', from)
      const row = await query.returningAll().executeTakeFirst()
      return row && present(row)
    },

    async stoppedSandboxIds(stoppedBefore) {
      let query = db.selectFrom('sandboxes').select('id').where('status', '=', 'stopped').orderBy('id')
      if (stoppedBefore !== undefined) query = query.where('stoppedAt', '<', stoppedBefore)
      return (await query.execute()).map(({ id }) => id)
    },

    async purgeSandboxes(ids) {
      const { numDeletedRows } = await db
        .deleteFrom('sandboxes')
        .where('status', '=', 'stopped')
        .where('id', '=', anyOf(ids))
        .executeTakeFirstOrThrow()
      return Number(numDeletedRows)
    },

    async tagKeys(orgId) {
      const { rows } = await sql<TagKey>`
        select tag.key, count(*) as sandbox_count, count(distinct tag.value) as value_count
        from sandboxes, jsonb_each_text(sandboxes.tags) as tag
        where org_id = ${orgId} and status <> 'stopped'
        group by tag.key
        order by tag.key collate "C"`.execute(db)
      return rows
    },
  } satisfies Partial<SandboxStore>
}

/** The columns of a change. Clearing a map empties it. */
function changed(change: SandboxChange): Updateable<SandboxTable> {
  const columns = cleared(change)
  for (const key of ['envs', 'metadata', 'tags'] as const) {
    if (key in change) columns[key] = strictJson(change[key] ?? {}, key)
  }
  if (change.reasonMessage !== undefined) columns['reasonMessage'] = lenient(change.reasonMessage)
  return columns
}
