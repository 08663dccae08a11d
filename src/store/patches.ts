import type { Kysely } from 'kysely'
import { ServiceError } from '../errors.ts'
import type { SandboxStore } from '../sandbox/ports/sandbox-store.ts'
import { recordMade } from './idempotency.ts'
import type { Database } from './schema.ts'
import { strict } from './text.ts'

export function patchStore(db: Kysely<Database>) {
  return {
    async insertPatch(patch, creation) {
      const script = strict(patch.script, 'script')
      const description = strict(patch.description, 'description')
      return await db.transaction().execute(async (transaction) => {
        await recordMade(transaction, creation, patch.id)
        // A counter in the checkpoint's row instead of the highest patch, so that numbers of deleted patches are not reused.
        const counter = await transaction
          .updateTable('checkpoints')
          .set((set) => ({ lastPatchSequence: set('lastPatchSequence', '+', 1) }))
          .where('id', '=', patch.checkpointId)
          .returning('lastPatchSequence')
          .executeTakeFirst()
        if (counter === undefined) {
          throw new ServiceError('not_found', `checkpoint ${patch.checkpointId} does not exist`)
        }
        return await transaction
          .insertInto('patches')
          .values({ ...patch, script, description, sequence: counter.lastPatchSequence })
          .returningAll()
          .executeTakeFirstOrThrow()
      })
    },

    async listPatches(checkpointId) {
      return await db
        .selectFrom('patches')
        .selectAll()
        .where('checkpointId', '=', checkpointId)
        .orderBy('sequence')
        .execute()
    },

    async deletePatch(checkpointId, patchId) {
      const { numDeletedRows } = await db
        .deleteFrom('patches')
        .where('checkpointId', '=', checkpointId)
        .where('id', '=', patchId)
        .executeTakeFirstOrThrow()
      return numDeletedRows > 0n
    },
  } satisfies Partial<SandboxStore>
}
