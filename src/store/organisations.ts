import type { Kysely } from 'kysely'
import { newId } from '../lib/id.ts'
import { ServiceError } from '../errors.ts'
import type { OrganisationStore } from '../organisation/index.ts'
import type { Database } from './schema.ts'
import type { LogWriter } from './event-log.ts'
import { strict } from './text.ts'

/** Bound of one read. */
const apiKeysMax = 10_000

export function organisationStore(db: Kysely<Database>, writer: LogWriter): OrganisationStore {
  const byDefault = () =>
    db.selectFrom('organisations').select(['id', 'name']).where('isDefault', '=', true).executeTakeFirst()

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

    async insertOrganisation({ id, name }) {
      await db
        .insertInto('organisations')
        .values({ id, name: strict(name, 'name') })
        .execute()
    },

    async insertApiKey(key) {
      const inserted = await writer.transaction(db, async (transaction, note) => {
        const row = await transaction
          .insertInto('apiKeys')
          .values(key)
          .onConflict((conflict) => conflict.column('keyHash').doNothing())
          .returning('id')
          .executeTakeFirst()
        if (row !== undefined) note(key.orgId, { type: 'key.created', subject: key.id, data: {} })
        return row
      })
      if (inserted !== undefined) return
      const owner = await db.selectFrom('apiKeys').select('orgId').where('keyHash', '=', key.keyHash).executeTakeFirst()
      if (owner?.orgId !== key.orgId) {
        throw new ServiceError('conflict', 'this API key belongs to another organisation')
      }
    },

    async deleteOtherApiKeys(orgId, keyHash) {
      await writer.transaction(db, async (transaction, note) => {
        const others = transaction.deleteFrom('apiKeys').where('orgId', '=', orgId).where('keyHash', '!=', keyHash)
        const deleted = await others.returning('id').execute()
        note(orgId, ...deleted.map(({ id }) => ({ type: 'key.deleted', subject: id, data: {} }) as const))
      })
    },

    async organisationByKey(keyHash) {
      return await db
        .selectFrom('apiKeys')
        .innerJoin('organisations', 'organisations.id', 'apiKeys.orgId')
        .select(['organisations.id', 'organisations.name', 'apiKeys.id as keyId'])
        .where('apiKeys.keyHash', '=', keyHash)
        .executeTakeFirst()
    },

    async apiKeyHashes() {
      const rows = await db.selectFrom('apiKeys').select('keyHash').limit(apiKeysMax).execute()
      return rows.map(({ keyHash }) => keyHash)
    },

    async countApiKeys(orgId) {
      const { count } = await db
        .selectFrom('apiKeys')
        .select((select) => select.fn.countAll<number>().as('count'))
        .where('orgId', '=', orgId)
        .executeTakeFirstOrThrow()
      return count
    },
  }
}
