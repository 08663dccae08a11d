import { sql, type Kysely, type Selectable, type Updateable } from 'kysely'
import type { Checkpoint } from '../sandbox/checkpoint.ts'
import type { SandboxStore } from '../sandbox/ports/sandbox-store.ts'
import { recordMade } from './idempotency.ts'
import { ownHost } from './installation.ts'
import { anyOf, cleared, ownedBy, present } from './rows.ts'
import type { CheckpointTable, Database } from './schema.ts'
import { lenient, strict, strictJson } from './text.ts'

export function checkpointStore(db: Kysely<Database>) {
  const byId = (id: string) => db.selectFrom('checkpoints').selectAll().where('id', '=', id)
  const oldestFirst = db.selectFrom('checkpoints').selectAll().orderBy('createdAt').orderBy('id')

  return {
    async insertCheckpoint({ name, sandboxConfig, volumes, error, ...rest }, creation) {
      const values = {
        ...rest,
        hostId: ownHost,
        name: strict(name, 'name'),
        sandboxConfig: strictJson(sandboxConfig, 'sandboxConfig'),
        volumes: strictJson(volumes, 'volumes'),
        error: error === undefined ? null : lenient(error),
      }
      await db.transaction().execute(async (transaction) => {
        await recordMade(transaction, creation, rest.id)
        await transaction.insertInto('checkpoints').values(values).execute()
      })
    },

    async checkpoint(id, orgId) {
      const row = await byId(id).where(ownedBy(orgId)).executeTakeFirst()
      return row && toCheckpoint(row)
    },

    async listCheckpoints(sandboxId, orgId) {
      const rows = await oldestFirst.where('sandboxId', '=', sandboxId).where('orgId', '=', orgId).execute()
      return rows.map(toCheckpoint)
    },

    async checkpointsNamed(prefix) {
      const rows = await oldestFirst.where(sql<boolean>`starts_with(name, ${prefix})`).execute()
      return rows.map(toCheckpoint)
    },

    async checkpointIds() {
      const rows = await db.selectFrom('checkpoints').select('id').orderBy('id').execute()
      return rows.map(({ id }) => id)
    },

    async checkpointsIn(status) {
      const rows = await oldestFirst.where('status', '=', status).execute()
      return rows.map(toCheckpoint)
    },

    async updateCheckpoint(id, change) {
      const set: Updateable<CheckpointTable> = cleared(change)
      if (change.error !== undefined) set.error = lenient(change.error)
      if (change.sandboxConfig !== undefined) set.sandboxConfig = strictJson(change.sandboxConfig, 'sandboxConfig')
      if (change.volumes !== undefined) set.volumes = strictJson(change.volumes, 'volumes')
      const update = db.updateTable('checkpoints').set(set).where('id', '=', id).returningAll()
      const row = await (Object.keys(change).length === 0 ? byId(id) : update).executeTakeFirst()
      return row && toCheckpoint(row)
    },

    async deleteCheckpoint(id) {
      return await db.transaction().execute(async (transaction) => {
        const { numDeletedRows } = await transaction
          .deleteFrom('checkpoints')
          .where('id', '=', id)
          .executeTakeFirstOrThrow()
        if (numDeletedRows === 0n) return false
        await transaction
          .insertInto('deletedCheckpoints')
          .values({ id })
          .onConflict((conflict) => conflict.doNothing())
          .execute()
        return true
      })
    },

    async deletedCheckpointIds() {
      const rows = await db.selectFrom('deletedCheckpoints').select('id').orderBy('id').execute()
      return rows.map(({ id }) => id)
    },

    async forgetCheckpoints(ids) {
      await db.deleteFrom('deletedCheckpoints').where('id', '=', anyOf(ids)).execute()
    },
  } satisfies Partial<SandboxStore>
}

function toCheckpoint({ lastPatchSequence: _counter, isPublic, ...row }: Selectable<CheckpointTable>): Checkpoint {
  return { ...present(row), ...(isPublic ? { isPublic } : {}) }
}
