import { sql, type Kysely } from 'kysely'
import type { CheckpointDependents } from '../sandbox/checkpoint-records.ts'
import type { SandboxStore } from '../sandbox/ports/sandbox-store.ts'
import { toCheckpoint } from './checkpoints.ts'
import { anyOf, decodeCursor, page, within } from './rows.ts'
import type { Database } from './schema.ts'

/** The checkpoints of an organisation, with what depends on them. */
export function checkpointListStore(db: Kysely<Database>) {
  return {
    async checkpointPage({ orgId, sandboxId, owner, withoutTurns, reach, limit, cursor }) {
      const after = cursor === undefined ? undefined : decodeCursor(cursor)
      let query = db
        .selectFrom('checkpoints')
        .selectAll()
        .where('orgId', '=', orgId)
        .orderBy('createdAt', 'desc')
        .orderBy('id', 'desc')
        .limit(limit + 1)
      if (sandboxId !== undefined) query = query.where('sandboxId', '=', sandboxId)
      if (owner !== undefined) query = query.where('owner', '=', owner)
      if (withoutTurns) query = query.where('owner', '<>', 'turn')
      if (reach !== undefined) {
        query = query.where((eb) =>
          eb.exists(
            eb
              .selectFrom('sandboxes')
              .select('sandboxes.id')
              .whereRef('sandboxes.id', '=', 'checkpoints.sandboxId')
              .where(within(reach, 'sandboxes')),
          ),
        )
      }
      if (after !== undefined)
        query = query.where((eb) => eb(eb.refTuple('createdAt', 'id'), '<', eb.tuple(after.createdAt, after.id)))
      return page((await query.execute()).map(toCheckpoint), limit)
    },

    async countCheckpoints(orgId) {
      const { count } = await db
        .selectFrom('checkpoints')
        .select((select) => select.fn.countAll<number>().as('count'))
        .where('orgId', '=', orgId)
        .where('owner', '=', 'client')
        .executeTakeFirstOrThrow()
      return count
    },

    async checkpointDependents(ids) {
      const { rows } = await sql<{ id: string } & CheckpointDependents>`
        with live as (
          select id as sandbox_id, from_checkpoint_id as id from sandboxes
          where from_checkpoint_id = ${anyOf(ids)} and status <> 'stopped'
        ), uses (id, sandboxes, sessions, images, checkpoints) as (
          select id, 1, 0, 0, 0 from live
          union all select checkpoint_id, 0, 1, 0, 0 from sessions
            where status = 'running' and checkpoint_id = ${anyOf(ids)}
          union all select checkpoint_id, 0, 0, 1, 0 from images where checkpoint_id = ${anyOf(ids)}
          union all select checkpoint_id, 0, 0, 1, 0 from image_layers where checkpoint_id = ${anyOf(ids)}
          union all select live.id, 0, 0, 0, 1 from live join checkpoints using (sandbox_id)
        )
        select id, sum(sandboxes) as sandboxes, sum(sessions) as sessions, sum(images) as images,
          sum(checkpoints) as checkpoints
        from uses group by id`.execute(db)
      return new Map(rows.map(({ id, ...dependents }) => [id, dependents]))
    },

    async expiredCheckpointIds({ before, after, limit }) {
      const { rows } = await sql<{ id: string }>`
        select id from checkpoints
        where expires_at <= ${before} and status <> 'processing' and id > ${after}
          and not exists (
            select from sandboxes join patches on patches.checkpoint_id = sandboxes.from_checkpoint_id
            where from_checkpoint_id = checkpoints.id and sandboxes.status <> 'stopped' and strategy = 'on_resume')
          and not exists (
            select from sessions where checkpoint_id = checkpoints.id and status = 'running' and not exists (
              select from sandboxes
              where sandboxes.id = sessions.sandbox_id and sandboxes.status in ('running', 'hibernated', 'stopped')))
        order by id limit ${limit}`.execute(db)
      return rows.map(({ id }) => id)
    },
  } satisfies Partial<SandboxStore>
}
