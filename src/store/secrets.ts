import { type Kysely, type Selectable, sql, type Transaction } from 'kysely'
import { ServiceError } from '../errors.ts'
import type { SealedSecret, SecretStorePort, Store } from '../secret/index.ts'
import { recordMade } from './idempotency.ts'
import { anyOf, present } from './rows.ts'
import type { Database, SecretStoreTable, SecretTable } from './schema.ts'
import { strict, strictJson } from './text.ts'

const tableOf = { secret: 'secrets', authority: 'egress_authorities' } as const
const columnOf = { secret: 'sealed_value', authority: 'sealed_key' } as const

export function secretStorePort(db: Kysely<Database>): SecretStorePort {
  const shown = (orgId: string) =>
    db.selectFrom('secretStores').selectAll().where('orgId', '=', orgId).where('sandboxId', 'is', null)
  return {
    async insertStore(store, { storesMax, creation }) {
      await db.transaction().execute(async (transaction) => {
        // Of two that add one at once the second counts that of the first.
        await transaction
          .selectFrom('organisations')
          .select('id')
          .where('id', '=', store.orgId)
          .forNoKeyUpdate()
          .execute()
        await recordMade(transaction, creation, store.id)
        const { count } = await transaction
          .selectFrom('secretStores')
          .select((select) => select.fn.countAll<number>().as('count'))
          .where('orgId', '=', store.orgId)
          .where('sandboxId', 'is', null)
          .executeTakeFirstOrThrow()
        assertRoom(count, storesMax, 'the organisation has', 'secret stores')
        await transaction.insertInto('secretStores').values(storeValues(store)).execute()
      })
    },

    async listStores(orgId) {
      return (await shown(orgId).orderBy('name').execute()).map(toStore)
    },

    async store(orgId, id) {
      const row = await shown(orgId).where('id', '=', id).executeTakeFirst()
      return row && toStore(row)
    },

    async updateStore(orgId, id, { name, egressAllowlist, ...rest }) {
      return await db.transaction().execute(async (transaction) => {
        const one = transaction.selectFrom('secretStores').selectAll().where('orgId', '=', orgId).where('id', '=', id)
        const before = await one.where('sandboxId', 'is', null).forUpdate().executeTakeFirst()
        if (before === undefined) return undefined
        const after = await transaction
          .updateTable('secretStores')
          .set({
            ...rest,
            ...(name === undefined ? {} : { name: strict(name, 'name') }),
            ...(egressAllowlist === undefined
              ? {}
              : { egressAllowlist: strictJson(egressAllowlist, 'egressAllowlist') }),
          })
          .where('id', '=', id)
          .returningAll()
          .executeTakeFirstOrThrow()
        return { before: toStore(before), after: toStore(after) }
      })
    },

    async deleteStore(orgId, id) {
      const row = await db
        .deleteFrom('secretStores')
        .where('orgId', '=', orgId)
        .where('id', '=', id)
        .where('sandboxId', 'is', null)
        .returningAll()
        .executeTakeFirst()
      return row && toStore(row)
    },

    async putSecret(secret, { secretsMax }) {
      const { id: _id, storeId, name, createdAt: _createdAt, ...rules } = secretValues(secret)
      await db.transaction().execute(async (transaction) => {
        const store = transaction.selectFrom('secretStores').select('id').where('id', '=', storeId).forUpdate()
        if ((await store.executeTakeFirst()) === undefined)
          throw new ServiceError('not_found', `no secret store ${storeId}`)
        const replaced = await transaction
          .updateTable('secrets')
          .set(rules)
          .where('storeId', '=', storeId)
          .where('name', '=', name)
          .executeTakeFirstOrThrow()
        if (replaced.numUpdatedRows === 0n) {
          const { count } = await transaction
            .selectFrom('secrets')
            .select((select) => select.fn.countAll<number>().as('count'))
            .where('storeId', '=', storeId)
            .executeTakeFirstOrThrow()
          assertRoom(count, secretsMax, 'the store has', 'secrets')
          await transaction.insertInto('secrets').values(secretValues(secret)).execute()
        }
        await transaction
          .updateTable('secretStores')
          .set({ updatedAt: secret.updatedAt })
          .where('id', '=', storeId)
          .execute()
      })
    },

    async listSecrets(storeId) {
      const rows = await db.selectFrom('secrets').selectAll().where('storeId', '=', storeId).orderBy('name').execute()
      return rows.map(toSecret)
    },

    async deleteSecret(storeId, name) {
      const { numDeletedRows } = await db
        .deleteFrom('secrets')
        .where('storeId', '=', storeId)
        .where('name', '=', name)
        .executeTakeFirst()
      return numDeletedRows > 0n
    },

    async putHidden(store, hiddenId, secrets) {
      await db.transaction().execute(async (transaction) => {
        await deleteHidden(transaction, store.orgId, hiddenId)
        await transaction
          .insertInto('secretStores')
          .values({ ...storeValues(store), sandboxId: hiddenId })
          .execute()
        if (secrets.length > 0) await transaction.insertInto('secrets').values(secrets.map(secretValues)).execute()
      })
    },

    deleteHidden: (orgId, hiddenId) => deleteHidden(db, orgId, hiddenId),

    async chainStores(orgId, { names, hidden }) {
      const rows = await db
        .selectFrom('secretStores')
        .selectAll()
        .where('orgId', '=', orgId)
        .where((where) =>
          where.or([
            where('sandboxId', '=', anyOf(hidden)),
            where.and([
              where('sandboxId', 'is', null),
              where.or([where('isDefault', '=', true), where('name', '=', anyOf(names))]),
            ]),
          ]),
        )
        .execute()
      if (rows.length === 0) return []
      const secrets = await db
        .selectFrom('secrets')
        .selectAll()
        .where('storeId', '=', anyOf(rows.map(({ id }) => id)))
        .orderBy('name')
        .execute()
      const byStore = Map.groupBy(secrets, ({ storeId }) => storeId)
      return rows.map((row) => ({
        store: toStore(row),
        ...(row.sandboxId === null ? {} : { hiddenId: row.sandboxId }),
        secrets: (byStore.get(row.id) ?? []).map(toSecret),
      }))
    },

    async hasDefaults(orgId) {
      const row = await shown(orgId).where('isDefault', '=', true).limit(1).executeTakeFirst()
      return row !== undefined
    },

    async keysInUse() {
      const { rows } = await sql<{ id: string }>`
        select distinct split_part(sealed_value, '.', 1) as id from secrets
        union select distinct split_part(sealed_key, '.', 1) from egress_authorities`.execute(db)
      return rows.map(({ id }) => id)
    },

    async sealedByOthers(of, keyId, { after, limit }) {
      const rest = (column: string) => sql`
        split_part(${sql.ref(column)}, '.', 1) <> ${keyId} and one.id > ${after} order by one.id limit ${limit}`
      const query =
        of === 'secret'
          ? sql<SealedFields>`
            select one.id, org_id, store_id, one.name, sealed_value as sealed
            from secrets one join secret_stores store on store.id = store_id where ${rest('one.sealed_value')}`
          : sql<SealedFields>`select id, org_id, sealed_key as sealed from egress_authorities one where ${rest('sealed_key')}`
      return (await query.execute(db)).rows.map((row) => ({ of, ...row }))
    },

    async reseal(rows) {
      let count = 0
      await db.transaction().execute(async (transaction) => {
        for (const { row, sealed } of rows) {
          const column = sql.id(columnOf[row.of])
          const { numAffectedRows = 0n } = await sql`
            update ${sql.id(tableOf[row.of])} set ${column} = ${sealed} where id = ${row.id} and ${column} = ${row.sealed}`.execute(
            transaction,
          )
          count += Number(numAffectedRows)
        }
      })
      return count
    },
  }
}

interface SealedFields {
  id: string
  orgId: string
  storeId?: string
  name?: string
  sealed: string
}

async function deleteHidden(
  on: Kysely<Database> | Transaction<Database>,
  orgId: string,
  hiddenId: string,
): Promise<boolean> {
  const deleted = on.deleteFrom('secretStores').where('orgId', '=', orgId).where('sandboxId', '=', hiddenId)
  return (await deleted.executeTakeFirst()).numDeletedRows > 0n
}

function assertRoom(count: number, countMax: number, who: string, what: string): void {
  if (count < countMax) return
  const message = `${who} ${count} ${what} and may have ${countMax}`
  throw new ServiceError('quota_exceeded', message, { details: { limit: countMax } })
}

function storeValues({ name, egressAllowlist, ...rest }: Store) {
  return {
    ...rest,
    name: strict(name, 'name'),
    egressAllowlist: strictJson(egressAllowlist, 'egressAllowlist'),
  }
}

function secretValues({ allowedHosts, places, sign, ...rest }: SealedSecret) {
  return {
    ...rest,
    allowedHosts: strictJson(allowedHosts, 'allowedHosts'),
    places: strictJson(places, 'in'),
    sign: sign === undefined ? null : strictJson(sign, 'sign'),
  }
}

function toStore({ sandboxId: _hidden, ...row }: Selectable<SecretStoreTable>): Store {
  return row
}

function toSecret(row: Selectable<SecretTable>): SealedSecret {
  return present(row)
}
