import { sql } from 'kysely'
import type { Kysely, Selectable, Updateable } from 'kysely'
import type { Checkpoint } from '../sandbox/checkpoint.ts'
import type { SandboxStore } from '../sandbox/ports/sandbox-store.ts'
import { recordMade } from './idempotency.ts'
import { ownHost } from './installation.ts'
import { anyOf, cleared, present } from './rows.ts'
import type { CheckpointTable, Database } from './schema.ts'
import { lenient, strict, strictJson } from './text.ts'

export type CheckpointStore = Pick<
  SandboxStore,
  | 'insertCheckpoint'
  | 'checkpoint'
  | 'listCheckpoints'
  | 'checkpointsNamed'
  | 'checkpointIds'
  | 'checkpointsIn'
  | 'updateCheckpoint'
  | 'deleteCheckpoint'
  | 'deletedCheckpointIds'
  | 'forgetCheckpoints'
>

export function checkpointStore(db: Kysely<Database>): CheckpointStore {
  return {
    async insertCheckpoint({ name, sandboxConfig, error, ...rest }, creation) {
      const values = {
        ...rest,
        hostId: ownHost,
        name: strict(name, 'name'),
        sandboxConfig: strictJson(sandboxConfig, 'sandboxConfig'),
        error: error === undefined ? null : lenient(error),
      }
      await db.transaction().execute(async (transaction) => {
        await recordMade(transaction, creation, rest.id)
        await transaction.insertInto('checkpoints').values(values).execute()
      })
    },

    async checkpoint(id, orgId) {
      let query = db.selectFrom('checkpoints').selectAll().where('id', '=', id)
      if (orgId !== undefined) query = query.where('orgId', '=', orgId)
      const row = await query.executeTakeFirst()
      return row && toCheckpoint(row)
    },

    async listCheckpoints(sandboxId, orgId) {
      const rows = await db
        .selectFrom('checkpoints')
        .selectAll()
        .where('sandboxId', '=', sandboxId)
        .where('orgId', '=', orgId)
        .orderBy('createdAt')
        .orderBy('id')
        .execute()
      return rows.map(toCheckpoint)
    },

    async checkpointsNamed(prefix) {
      const rows = await db
        .selectFrom('checkpoints')
        .selectAll()
        .where(sql<boolean>`starts_with(name, ${prefix})`)
        .orderBy('createdAt')
        .orderBy('id')
        .execute()
      return rows.map(toCheckpoint)
    },

    async checkpointIds() {
      const rows = await db.selectFrom('checkpoints').select('id').orderBy('id').execute()
      return rows.map(({ id }) => id)
    },

    async checkpointsIn(status) {
      const rows = await db
        .selectFrom('checkpoints')
        .selectAll()
        .where('status', '=', status)
        .orderBy('createdAt')
        .orderBy('id')
        .execute()
      return rows.map(toCheckpoint)
    },

    async updateCheckpoint(id, change) {
      if (Object.keys(change).length === 0) return await this.checkpoint(id)
      const set: Updateable<CheckpointTable> = cleared(change)
      if (change.error !== undefined) set.error = lenient(change.error)
      const row = await db.updateTable('checkpoints').set(set).where('id', '=', id).returningAll().executeTakeFirst()
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
  }
}

function toCheckpoint({ lastPatchSequence: _counter, ...row }: Selectable<CheckpointTable>): Checkpoint {
  return present(row)
}
