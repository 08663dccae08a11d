import { type Kysely, type Selectable, type Updateable } from 'kysely'
import type { Checkpoint } from '../sandbox/checkpoint-records.ts'
import { checkpointDeleted, checkpointEntries } from '../sandbox/log-entries.ts'
import type { SandboxStore } from '../sandbox/ports/sandbox-store.ts'
import type { LogWriter } from './event-log.ts'
import { recordMade } from './idempotency.ts'
import { ownHost } from './installation.ts'
import { anyOf, cleared, ownedBy, present } from './rows.ts'
import type { CheckpointTable, Database } from './schema.ts'
import { lenient, strict, strictJson } from './text.ts'

export function checkpointStore(db: Kysely<Database>, writer: LogWriter) {
  const byId = (id: string) => db.selectFrom('checkpoints').selectAll().where('id', '=', id)
  const oldestFirst = db.selectFrom('checkpoints').selectAll().orderBy('createdAt').orderBy('id')

  return {
    async insertCheckpoint(checkpoint, creation) {
      const { name, sandboxConfig, volumes, error, ...rest } = checkpoint
      const values = {
        ...rest,
        hostId: ownHost,
        name: strict(name, 'name'),
        sandboxConfig: strictJson(sandboxConfig, 'sandboxConfig'),
        volumes: strictJson(volumes, 'volumes'),
        error: error === undefined ? null : lenient(error),
      }
      await writer.transaction(db, async (transaction, note) => {
        await recordMade(transaction, creation, rest.id)
        await transaction.insertInto('checkpoints').values(values).execute()
        note(rest.orgId, ...checkpointEntries(checkpoint))
      })
    },

    async checkpoint(id, orgId) {
      return await one(byId(id).where(ownedBy(orgId)))
    },

    async checkpointNamed(name, sandboxId, orgId) {
      const row = await db
        .selectFrom('checkpoints')
        .select('id')
        .where('sandboxId', '=', sandboxId)
        .where('name', '=', name)
        .where('orgId', '=', orgId)
        .executeTakeFirst()
      return row?.id
    },

    async listCheckpoints(sandboxId, orgId) {
      const rows = await oldestFirst.where('sandboxId', '=', sandboxId).where('orgId', '=', orgId).execute()
      return rows.map(toCheckpoint)
    },

    async checkpointsOwnedBy(owner) {
      const rows = await oldestFirst.where('owner', '=', owner).execute()
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
      if (Object.keys(change).length === 0) return await one(byId(id))
      const update = (on: Kysely<Database>) =>
        one(on.updateTable('checkpoints').set(set).where('id', '=', id).returningAll())
      if (change.status === undefined) return await update(db)
      return await writer.transaction(db, async (transaction, note) => {
        const before = await transaction
          .selectFrom('checkpoints')
          .select('status')
          .where('id', '=', id)
          .forUpdate()
          .execute()
        const checkpoint = await update(transaction)
        if (checkpoint !== undefined && before[0]?.status !== checkpoint.status)
          note(checkpoint.orgId, ...checkpointEntries(checkpoint))
        return checkpoint
      })
    },

    async deleteCheckpoint(id, expiredBy) {
      return await writer.transaction(db, async (transaction, note) => {
        let query = transaction.deleteFrom('checkpoints').where('id', '=', id)
        if (expiredBy !== undefined) query = query.where('expiresAt', '<=', expiredBy)
        const deleted = await one(query.returningAll())
        if (deleted === undefined) return false
        note(deleted.orgId, checkpointDeleted(deleted, expiredBy && 'expired'))
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

async function one(query: { executeTakeFirst(): Promise<Selectable<CheckpointTable> | undefined> }) {
  const row = await query.executeTakeFirst()
  return row && toCheckpoint(row)
}

export function toCheckpoint({
  lastPatchSequence: _counter,
  isPublic,
  ...row
}: Selectable<CheckpointTable>): Checkpoint {
  return { ...present(row), ...(isPublic ? { isPublic } : {}) }
}
