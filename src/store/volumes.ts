import type { Kysely, Transaction } from 'kysely'
import { attachmentEntry, volumeEntry, volumeSnapshotEntry } from '../sandbox/log-entries.ts'
import type { SandboxStore } from '../sandbox/ports/sandbox-store.ts'
import type { LogWriter } from './event-log.ts'
import { recordMade } from './idempotency.ts'
import { ownHost } from './installation.ts'
import { anyOf, present } from './rows.ts'
import type { Database } from './schema.ts'
import { strict } from './text.ts'

export function volumeStore(db: Kysely<Database>, writer: LogWriter) {
  return {
    async reserveVolume(id) {
      await remember(db, id)
    },

    async insertVolume(volume, creation) {
      const { name, source, ...rest } = volume
      const texts = { name: strict(name, 'name'), source: source === undefined ? null : strict(source, 'from') }
      await writer.transaction(db, async (transaction, note) => {
        await recordMade(transaction, creation, rest.id)
        await transaction
          .insertInto('volumes')
          .values({ ...rest, ...texts, hostId: ownHost })
          .execute()
        await transaction.deleteFrom('volumeRemains').where('id', '=', rest.id).execute()
        note(rest.orgId, volumeEntry('created', volume))
      })
    },

    async volume(orgId, key) {
      const [column, value] = 'id' in key ? (['id', key.id] as const) : (['name', key.name] as const)
      const row = await db
        .selectFrom('volumes')
        .selectAll()
        .where('orgId', '=', orgId)
        .where(column, '=', value)
        .executeTakeFirst()
      return row && present(row)
    },

    async listVolumes(orgId) {
      const rows = await db.selectFrom('volumes').selectAll().where('orgId', '=', orgId).orderBy('name').execute()
      return rows.map(present)
    },

    async insertVolumeSnapshot(snapshot, creation) {
      const { name, ...rest } = snapshot
      await writer.transaction(db, async (transaction, note) => {
        await recordMade(transaction, creation, rest.id)
        await transaction
          .insertInto('volumeSnapshots')
          .values({ ...rest, name: strict(name, 'name') })
          .execute()
        await transaction.deleteFrom('volumeRemains').where('id', '=', rest.id).execute()
        note(rest.orgId, volumeSnapshotEntry('created', snapshot))
      })
    },

    async listVolumeSnapshots(volumeId) {
      return await db
        .selectFrom('volumeSnapshots')
        .selectAll()
        .where('volumeId', '=', volumeId)
        .orderBy('createdAt')
        .orderBy('id')
        .execute()
    },

    async deleteVolume(id) {
      return await writer.transaction(db, async (transaction, note) => {
        const snapshots = transaction.deleteFrom('volumeSnapshots').where('id', '=', id).returningAll()
        const snapshot = await snapshots.executeTakeFirst()
        if (snapshot === undefined) {
          const volumes = transaction.deleteFrom('volumes').where('id', '=', id).returningAll()
          const volume = await volumes.executeTakeFirst()
          if (volume === undefined) return false
          note(volume.orgId, volumeEntry('deleted', present(volume)))
        } else note(snapshot.orgId, volumeSnapshotEntry('deleted', snapshot))
        await remember(transaction, id)
        return true
      })
    },

    async volumeIds() {
      const [volumes, snapshots] = [
        db.selectFrom('volumes').select('id'),
        db.selectFrom('volumeSnapshots').select('id'),
      ]
      const rows = await volumes.unionAll(snapshots).orderBy('id').execute()
      return rows.map(({ id }) => id)
    },

    async volumeRemains() {
      const rows = await db.selectFrom('volumeRemains').select('id').orderBy('id').execute()
      return rows.map(({ id }) => id)
    },

    async forgetVolumes(ids) {
      await db.deleteFrom('volumeRemains').where('id', '=', anyOf(ids)).execute()
    },

    async volumeAttachments(volumeId) {
      return await db
        .selectFrom('volumeAttachments')
        .selectAll()
        .where('volumeId', '=', volumeId)
        .orderBy('sandboxId')
        .execute()
    },

    async detachVolumes(sandboxId) {
      await writer.transaction(db, async (transaction, note) => {
        const detached = await transaction
          .deleteFrom('volumeAttachments')
          .using('volumes')
          .whereRef('volumes.id', '=', 'volumeAttachments.volumeId')
          .where('sandboxId', 'in', stopped(db))
          .where('sandboxId', '=', sandboxId)
          .returningAll('volumeAttachments')
          .returning('volumes.orgId')
          .execute()
        for (const { orgId, ...attachment } of detached) note(orgId, attachmentEntry('detached', attachment))
      })
    },

    async stoppedHolders() {
      const rows = await db
        .selectFrom('volumeAttachments')
        .select('sandboxId')
        .distinct()
        .where('sandboxId', 'in', stopped(db))
        .orderBy('sandboxId')
        .execute()
      return rows.map(({ sandboxId }) => sandboxId)
    },
  } satisfies Partial<SandboxStore>
}

function stopped(db: Kysely<Database>) {
  return db.selectFrom('sandboxes').select('id').where('status', '=', 'stopped')
}

async function remember(db: Kysely<Database> | Transaction<Database>, id: string): Promise<void> {
  await db
    .insertInto('volumeRemains')
    .values({ id })
    .onConflict((conflict) => conflict.doNothing())
    .execute()
}
