import { sql, type Insertable, type Kysely, type Transaction } from 'kysely'
import type { LogEntry } from '../events/index.ts'
import { defined } from '../lib/defined.ts'
import { newId } from '../lib/id.ts'
import { ServiceError } from '../errors.ts'
import type { Organisation, OrganisationStore, OrganisationUse } from '../organisation/index.ts'
import type { Database } from './schema.ts'
import type { LogWriter } from './event-log.ts'
import { recordMade } from './idempotency.ts'
import { deleteOrganisationRows } from './organisation-rows.ts'
import { anyOf, cleared, present } from './rows.ts'
import { strict, strictJson } from './text.ts'

/** Bound of one read. */
const apiKeysMax = 10_000

export function organisationStore(db: Kysely<Database>, writer: LogWriter): OrganisationStore {
  const byDefault = async () => {
    const row = await db.selectFrom('organisations').selectAll().where('isDefault', '=', true).executeTakeFirst()
    return row && present(row)
  }

  return {
    async defaultOrganisation() {
      const found = await byDefault()
      if (found !== undefined) return found
      // Concurrent callers may both get here: one row is inserted, and both read it.
      await db
        .insertInto('organisations')
        .values({ id: newId('org_'), name: 'default', isDefault: true })
        .onConflict((conflict) => conflict.doNothing())
        .execute()
      const made = await byDefault()
      if (made === undefined) throw new Error('the default organisation is missing after its insert')
      return made
    },

    async organisations() {
      return (await db.selectFrom('organisations').selectAll().execute()).map(present)
    },

    async insertOrganisation({ name, limits = {}, ...rest }, creation) {
      const values = { ...rest, name: strict(name, 'name'), limits: strictJson(limits, 'limits') }
      await db.transaction().execute(async (transaction) => {
        await recordMade(transaction, creation, rest.id)
        await transaction.insertInto('organisations').values(values).execute()
      })
    },

    async updateOrganisation(id, { name, limits, ...rest }) {
      const set = {
        ...cleared(rest),
        ...(name === undefined ? {} : { name: strict(name, 'name') }),
        ...(limits === undefined ? {} : { limits: strictJson(limits, 'limits') }),
      }
      return await writer.transaction(db, async (transaction, note) => {
        const before = await lockedOrganisation(transaction, id)
        if (before === undefined || Object.keys(set).length === 0) return before
        const update = transaction.updateTable('organisations').set(set).where('id', '=', id).returningAll()
        const after = present(await update.executeTakeFirstOrThrow())
        note(id, ...suspensionEntries(before, after))
        return after
      })
    },

    async use(id) {
      const { rows } = await sql<OrganisationUse>`
        select
          count(*) filter (where status in ('creating', 'running')) as running_sandboxes,
          coalesce(sum(memory_mb) filter (where status in ('creating', 'running')), 0) as memory_mb,
          coalesce(sum(cpu_count) filter (where status in ('creating', 'running')), 0) as cpu_count,
          count(*) as sandboxes,
          (select count(*) from checkpoints where org_id = ${id}) as checkpoints,
          (select count(*) from sessions where org_id = ${id} and status = 'running') as sessions,
          (select count(*) from volumes where org_id = ${id}) as volumes,
          (select count(*) from images where org_id = ${id}) as images,
          (select count(*) from api_keys where org_id = ${id}) as keys
        from sandboxes where org_id = ${id} and status <> 'stopped'`.execute(db)
      const [use] = rows
      if (use === undefined) throw new Error('a sum has no row')
      return use
    },

    async deleteOrganisation(id) {
      await writer.transaction(db, async (transaction, note) => {
        const keys = await transaction.deleteFrom('apiKeys').where('orgId', '=', id).returning('id').execute()
        note(id, ...keys.map((key) => ({ type: 'key.deleted', subject: key.id, data: {} }) as const))
      })
      await deleteOrganisationRows(db, id)
    },

    async insertApiKey({ name = '', ...rest }) {
      const values: Insertable<Database['apiKeys']> = { ...rest, name: strict(name, 'name') }
      const inserted = await writer.transaction(db, async (transaction, note) => {
        const row = await transaction
          .insertInto('apiKeys')
          .values(values)
          .onConflict((conflict) => conflict.column('keyHash').doNothing())
          .returning('id')
          .executeTakeFirst()
        if (row !== undefined) note(rest.orgId, { type: 'key.created', subject: rest.id, data: {} })
        return row
      })
      if (inserted !== undefined) return
      const owner = await db
        .selectFrom('apiKeys')
        .select('orgId')
        .where('keyHash', '=', rest.keyHash)
        .executeTakeFirst()
      if (owner?.orgId !== rest.orgId) {
        throw new ServiceError('conflict', 'this API key belongs to another organisation')
      }
    },

    async addApiKey({ name, ...rest }, { keysMax, creation }) {
      const { orgId, madeBy } = rest
      await writer.transaction(db, async (transaction, note) => {
        // Of two that add or end keys at once the second sees what the first has done.
        await lockedOrganisation(transaction, orgId)
        await recordMade(transaction, creation, rest.id)
        const keys = await transaction.selectFrom('apiKeys').select('id').where('orgId', '=', orgId).execute()
        if (madeBy !== undefined && !keys.some(({ id }) => id === madeBy)) {
          throw new ServiceError('unauthorized', 'the API key is not known')
        }
        if (keys.length >= keysMax) {
          const message = `the organisation has ${keysMax} API keys, the most it may have`
          throw new ServiceError('quota_exceeded', message, { details: { limit: keysMax } })
        }
        await transaction
          .insertInto('apiKeys')
          .values({ ...rest, name: strict(name, 'name') })
          .execute()
        note(orgId, { type: 'key.created', subject: rest.id, data: {} })
      })
    },

    async deleteOtherDefaultKeys(orgId, keyHash) {
      await writer.transaction(db, async (transaction, note) => {
        const others = transaction
          .deleteFrom('apiKeys')
          .where('orgId', '=', orgId)
          .where('isDefault', '=', true)
          .where('keyHash', '!=', keyHash)
        const deleted = await others.returning('id').execute()
        note(orgId, ...deleted.map(({ id }) => ({ type: 'key.deleted', subject: id, data: {} }) as const))
      })
    },

    async apiKeyByHash(keyHash) {
      const row = await db.selectFrom('apiKeys').selectAll().where('keyHash', '=', keyHash).executeTakeFirst()
      return row && present(row)
    },

    async listApiKeys(orgId) {
      const rows = await db
        .selectFrom('apiKeys')
        .selectAll()
        .where('orgId', '=', orgId)
        .orderBy('createdAt', 'desc')
        .orderBy('id', 'desc')
        .limit(apiKeysMax)
        .execute()
      return rows.map(present)
    },

    async deleteApiKey(orgId, id) {
      return await writer.transaction(db, async (transaction, note) => {
        await lockedOrganisation(transaction, orgId)
        const own = transaction.selectFrom('apiKeys').select('madeBy').where('orgId', '=', orgId).where('id', '=', id)
        const { madeBy = null } = (await own.executeTakeFirst()) ?? {}
        const { rows } = await sql<{ id: string }>`
          with recursive ended as (
            select id from api_keys where org_id = ${orgId} and id = ${id}
            union select made.id from api_keys made join ended on made.made_by = ended.id
          )
          delete from api_keys using ended where api_keys.id = ended.id returning api_keys.id`.execute(transaction)
        const ids = rows.map((row) => row.id)
        // They count for its maker from now on, which would else make any number by keys that it ends.
        if (madeBy !== null) {
          const live = transaction.updateTable('sandboxes').where('status', '<>', 'stopped')
          await live.set({ keyId: madeBy }).where('keyId', '=', anyOf(ids)).execute()
          const running = transaction.updateTable('sessions').where('status', '=', 'running')
          await running.set({ keyId: madeBy }).where('keyId', '=', anyOf(ids)).execute()
        }
        note(orgId, ...ids.map((subject) => ({ type: 'key.deleted', subject, data: {} }) as const))
        return ids
      })
    },

    async touchApiKey(id, usedAt, before) {
      await db
        .updateTable('apiKeys')
        .set({ lastUsedAt: usedAt })
        .where('id', '=', id)
        .where((eb) => eb.or([eb('lastUsedAt', 'is', null), eb('lastUsedAt', '<=', before)]))
        .execute()
    },

    async defaultKeyHashes() {
      const rows = await db.selectFrom('apiKeys').select('keyHash').where('isDefault', '=', true).execute()
      return rows.map(({ keyHash }) => keyHash)
    },

    async countDefaultKeys(orgId) {
      const { count } = await db
        .selectFrom('apiKeys')
        .select((select) => select.fn.countAll<number>().as('count'))
        .where('orgId', '=', orgId)
        .where('isDefault', '=', true)
        .executeTakeFirstOrThrow()
      return count
    },

    async operatorKeyHashes() {
      return (await db.selectFrom('operatorKeys').select('keyHash').execute()).map(({ keyHash }) => keyHash)
    },

    async putOperatorKey(keyHash) {
      await db.transaction().execute(async (transaction) => {
        await transaction.deleteFrom('operatorKeys').where('keyHash', '!=', keyHash).execute()
        await transaction
          .insertInto('operatorKeys')
          .values({ keyHash })
          .onConflict((conflict) => conflict.doNothing())
          .execute()
      })
    },
  }
}

async function lockedOrganisation(transaction: Transaction<Database>, id: string): Promise<Organisation | undefined> {
  const query = transaction.selectFrom('organisations').selectAll().where('id', '=', id).forNoKeyUpdate()
  const row = await query.executeTakeFirst()
  return row && present(row)
}

function suspensionEntries(before: Organisation, after: Organisation): LogEntry[] {
  const isSuspended = after.suspendedAt !== undefined
  if (isSuspended === (before.suspendedAt !== undefined)) return []
  const subject = after.id
  if (!isSuspended) return [{ type: 'organisation.resumed', subject, data: {} }]
  return [{ type: 'organisation.suspended', subject, data: defined({ message: after.suspendedReason }) }]
}
