import { sql, type Kysely, type NotNull, type Transaction, type Updateable } from 'kysely'
import { whoActs } from '../events/index.ts'
import { attachmentEntry, attachmentsOf, type SandboxBefore, sandboxEntries } from '../sandbox/log-entries.ts'
import type { Sandbox, SandboxChange, SandboxStatus } from '../sandbox/sandbox.ts'
import type { DiskUse, SandboxUse, SandboxCounts, SandboxStore, TagKey } from '../sandbox/ports/sandbox-store.ts'
import { checkpointListStore } from './checkpoint-list.ts'
import { checkpointStore } from './checkpoints.ts'
import type { LogWriter } from './event-log.ts'
import { recordOutcome } from './idempotency.ts'
import { ownHost } from './installation.ts'
import { makingKey } from './making-key.ts'
import { decodeCursor, page, anyOf, cleared, ownedBy, present, within } from './rows.ts'
import { patchStore } from './patches.ts'
import { sandboxTreeStore } from './sandbox-tree.ts'
import { volumeStore } from './volumes.ts'
import { previewStore } from './previews.ts'
import type { Database, SandboxTable } from './schema.ts'
import { lenient, lenientJson, strict, strictJson } from './text.ts'

/** The whole port; checkpoints, patches and previews have their own files. */
export function sandboxStore(db: Kysely<Database>, writer: LogWriter): SandboxStore {
  return {
    ...sandboxesAlone(db, writer),
    ...checkpointStore(db, writer),
    ...checkpointListStore(db),
    ...sandboxTreeStore(db),
    ...patchStore(db),
    ...previewStore(db, writer),
    ...volumeStore(db, writer),
  }
}

function sandboxesAlone(db: Kysely<Database>, writer: LogWriter) {
  const sandbox: SandboxStore['sandbox'] = async (id, orgId) => {
    const query = db.selectFrom('sandboxes').selectAll().where('id', '=', id).where(ownedBy(orgId))
    const row = await query.executeTakeFirst()
    return row && present(row)
  }

  /** Updates in one statement. Undefined when the sandbox is not as expected, or the log needs its parent. */
  const updateExpected = async (expected: Sandbox, change: SandboxChange, set: Updateable<SandboxTable>) => {
    const { id, orgId, status, cpuCount, memoryMb, fromCheckpointId } = expected
    const after = { ...expected, ...change } as Sandbox
    const entries = fromCheckpointId === undefined ? sandboxEntries(expected, after, whoActs()) : []
    if (entries.length === 0) return undefined
    const isExpected = { id, orgId, status, cpuCount, memoryMb }
    const update = db
      .updateTable('sandboxes')
      .set(set)
      .where((eb) => eb.and(isExpected))
      .returningAll()
    const row = await writer.statement(db, update, { orgId, entries })
    return row && present(row)
  }

  return {
    sandbox,

    async sandboxNamed(name, orgId) {
      const row = await db
        .selectFrom('sandboxes')
        .select('id')
        .where('orgId', '=', orgId)
        .where('name', '=', name)
        .where('status', '<>', 'stopped')
        .executeTakeFirst()
      return row?.id
    },

    async sandboxNames(ids) {
      const { rows } = await sql<{ id: string; name: string }>`
        select id, name from sandboxes where id = ${anyOf(ids)} and name is not null and status <> 'stopped'`.execute(
        db,
      )
      return new Map(rows.map((row) => [row.id, row.name]))
    },

    async insertSandbox({ image, envs, metadata, tags, volumes, commandDefaults, egress, reasonMessage, ...rest }) {
      const values = {
        ...rest,
        hostId: ownHost,
        keyId: makingKey(),
        image: strict(image, 'image'),
        envs: strictJson(envs, 'envs'),
        metadata: strictJson(metadata, 'metadata'),
        tags: strictJson(tags, 'tags'),
        volumes: strictJson(volumes, 'volumes'),
        commandDefaults: commandDefaults === undefined ? null : lenientJson(commandDefaults),
        egress: egress === undefined ? null : strictJson(egress, 'egress'),
        reasonMessage: reasonMessage === undefined ? null : lenient(reasonMessage),
      }
      const entries = sandboxEntries(undefined, { ...rest, image, envs, metadata, tags, volumes }, whoActs())
      const insert = (on: Kysely<Database>) => on.insertInto('sandboxes').values(values).execute()
      if (volumes.length === 0 && entries.length === 0) {
        await insert(db)
        return
      }
      const attachments = attachmentsOf(rest.id, volumes)
      await writer.transaction(db, async (transaction, note) => {
        await insert(transaction)
        if (attachments.length > 0) await transaction.insertInto('volumeAttachments').values(attachments).execute()
        note(rest.orgId, ...attachments.map((attachment) => attachmentEntry('attached', attachment)), ...entries)
      })
    },

    async listSandboxes({ orgId, statuses, name, metadata, tags, tagKeys, reach, limit, cursor }) {
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
      if (name !== undefined) query = query.where('name', '=', name)
      if (reach !== undefined) query = query.where(within(reach, 'sandboxes'))
      // Each index has the rows with a map alone, so say that they have one.
      if (metadata !== undefined) {
        query = query.where(sql<boolean>`metadata <> '{}' and metadata @> ${strictJson(metadata, 'metadata')}::jsonb`)
      }
      if (tags !== undefined) {
        query = query.where(sql<boolean>`tags <> '{}' and tags @> ${strictJson(tags, 'tag')}::jsonb`)
      }
      if (tagKeys !== undefined) {
        const keys = tagKeys.map((key) => strict(key, 'tag'))
        query = query.where(sql<boolean>`tags <> '{}' and tags ?& ${keys}::text[]`)
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

    async reachedKeyBound(exceptId) {
      const maker = makingKey()
      if (maker === null) return undefined
      const { rows } = await sql<{ bound: number }>`
        with recursive above (id, made_by, bound) as (
          select id, made_by, sandboxes_max from api_keys where id = ${maker}
          union select maker.id, maker.made_by, maker.sandboxes_max
            from api_keys maker join above on maker.id = above.made_by
        ), below (bounded, id) as (
          select id, id from above where bound is not null
          union select below.bounded, made.id from api_keys made join below on made.made_by = below.id
        )
        select bound from above where bound <= (
          select count(*) from sandboxes join below on below.id = sandboxes.key_id and below.bounded = above.id
          where sandboxes.status <> 'stopped' and sandboxes.id <> ${exceptId}
        ) order by bound limit 1`.execute(db)
      return rows[0]?.bound
    },

    async sandboxUse(orgId, exceptId = '') {
      const { rows } = await sql<SandboxUse>`
        select count(*) as all, count(*) filter (where runs) as running,
          coalesce(sum(memory_mb) filter (where runs), 0) as memory_mb, coalesce(sum(cpu_count) filter (where runs), 0) as cpu_count
        from (
          select *, status in ('creating', 'running') as runs from sandboxes
          where org_id = ${orgId} and status <> 'stopped' and id <> ${exceptId}
        ) as alive`.execute(db)
      return rows[0] ?? { all: 0, running: 0, memoryMb: 0, cpuCount: 0 }
    },

    async diskUse(orgId, exceptId = '') {
      const { rows } = await sql<DiskUse>`
        select
          (select coalesce(sum(disk_mb), 0) from sandboxes
            where org_id = ${orgId} and status <> 'stopped' and id <> ${exceptId})
          + (select coalesce(sum(size_mb), 0) from volumes where org_id = ${orgId})
          + (select coalesce(sum(size_mb), 0) from volume_snapshots where org_id = ${orgId}) as promised_mb,
          (select coalesce(sum(size_bytes), 0) from checkpoints where org_id = ${orgId})::bigint as stored_bytes`.execute(
        db,
      )
      const [use = { promisedMb: 0, storedBytes: 0 }] = rows
      return use
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

    async updateSandbox(id, change, from, { creationNote, expected, expiresBy } = {}) {
      if (from?.length === 0) return undefined
      if (Object.keys(change).length === 0) {
        const unchanged = await sandbox(id)
        return unchanged && (from === undefined || from.includes(unchanged.status)) ? unchanged : undefined
      }
      const set = changed(change)
      const isPlain = creationNote === undefined && expiresBy === undefined
      if (isPlain && !logged.some((key) => key in change)) {
        let query = db.updateTable('sandboxes').set(set).where('id', '=', id)
        if (from !== undefined) query = query.where('status', 'in', from)
        const row = await query.returningAll().executeTakeFirst()
        return row && present(row)
      }
      if (expected !== undefined && isPlain) {
        const updated = await updateExpected(expected, change, set)
        if (updated !== undefined) return updated
      }
      return await writer.transaction(db, async (transaction, note) => {
        const row = await updatedWithBefore(transaction, id, set, { from, expiresBy })
        if (row === undefined) return undefined
        const { before, parentId, ...updated } = row
        const after = present(updated)
        if (creationNote !== undefined) await recordOutcome(transaction, creationNote, id)
        note(after.orgId, ...sandboxEntries(before, after, { ...whoActs(), parentId: parentId ?? undefined }))
        return after
      })
    },

    async nextExpiring(limit) {
      return await db
        .selectFrom('sandboxes')
        .select(['id', 'expiresAt'])
        .where('expiresAt', 'is not', null)
        .where('status', '<>', 'stopped')
        .orderBy('expiresAt')
        .limit(limit)
        .$narrowType<{ expiresAt: NotNull }>()
        .execute()
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

    async tagKeys(orgId, reach) {
      const { rows } = await sql<TagKey>`
        select tag.key, count(*) as sandbox_count, count(distinct tag.value) as value_count
        from sandboxes, jsonb_each_text(sandboxes.tags) as tag
        where org_id = ${orgId} and status <> 'stopped' and ${reach === undefined ? sql`true` : within(reach, 'sandboxes')}
        group by tag.key
        order by tag.key collate "C"`.execute(db)
      return rows
    },
  } satisfies Partial<SandboxStore>
}

/** Fields whose changes the log has. */
const logged = ['status', 'cpuCount', 'memoryMb'] as const

/** Locks and updates the row. Returns it with its former values. */
async function updatedWithBefore(
  transaction: Transaction<Database>,
  id: string,
  set: Updateable<SandboxTable>,
  { from, expiresBy }: { from: readonly SandboxStatus[] | undefined; expiresBy: Date | undefined },
) {
  const before = transaction
    .selectFrom('sandboxes as earlier')
    .select([
      'earlier.id',
      sql<SandboxBefore>`jsonb_build_object(
      'status', earlier.status, 'cpuCount', earlier.cpu_count, 'memoryMb', earlier.memory_mb)`.as('before'),
    ])
    .where('earlier.id', '=', id)
    .forUpdate()
  let query = transaction
    .updateTable('sandboxes')
    .from(before.as('former'))
    .set(set)
    .whereRef('sandboxes.id', '=', 'former.id')
  if (from !== undefined) query = query.where('sandboxes.status', 'in', from)
  if (expiresBy !== undefined) query = query.where('sandboxes.expiresAt', '<=', expiresBy)
  const parentId = sql<string | null>`(select checkpoints.sandbox_id from checkpoints
    where checkpoints.id = sandboxes.from_checkpoint_id)`
  return await query
    .returningAll('sandboxes')
    .returning(['former.before', parentId.as('parentId')])
    .executeTakeFirst()
}

/** The columns of a change. Clearing a map empties it. */
function changed(change: SandboxChange): Updateable<SandboxTable> {
  const columns = cleared(change)
  for (const key of ['envs', 'metadata', 'tags'] as const) {
    if (key in change) columns[key] = strictJson(change[key] ?? {}, key)
  }
  if (change.egress !== undefined) columns['egress'] = strictJson(change.egress, 'egress')
  if (change.reasonMessage !== undefined) columns['reasonMessage'] = lenient(change.reasonMessage)
  return columns
}
