import { sql, type Kysely, type RawBuilder } from 'kysely'
import type { SandboxStore, TreeNode, TreeQuery } from '../sandbox/ports/sandbox-store.ts'
import { anyOf, present, within } from './rows.ts'
import type { Database } from './schema.ts'

/** Generations that a walk follows, so that it also ends where rows lead around in a circle, which no call makes them do. */
const generationsMax = 10_000

/** A node as the walks find it, without what it is. */
interface Found {
  type: TreeNode['type']
  id: string
  parentId: string | null
}

/** Where sandboxes come from by way of checkpoints, and what comes from them. */
export function sandboxTreeStore(db: Kysely<Database>) {
  /** The sandbox, the checkpoint that it was started from, the sandbox of that, and so on. */
  const ancestors = async (sandboxId: string, { orgId, reach }: TreeQuery): Promise<Found[]> => {
    const isWithin = (id: RawBuilder<unknown>) =>
      reach === undefined
        ? sql`true`
        : sql`exists (select from sandboxes where sandboxes.id = ${id} and ${within(reach, 'sandboxes')})`
    const { rows } = await sql<{ sandboxId: string; checkpointId: string | null }>`
      with recursive up (sandbox_id, checkpoint_id, generation) as (
        select ${sandboxId}::text collate "C", null::text collate "C", 0 where ${isWithin(sql`${sandboxId}`)}
        union all
        select checkpoints.sandbox_id, checkpoints.id, generation + 1
        from up
        join sandboxes on sandboxes.id = up.sandbox_id and sandboxes.org_id = ${orgId}
        join checkpoints on checkpoints.id = sandboxes.from_checkpoint_id and checkpoints.org_id = ${orgId}
        where owner <> 'image' and generation < ${generationsMax} and ${isWithin(sql`checkpoints.sandbox_id`)}
      )
      select sandbox_id, checkpoint_id from up order by generation`.execute(db)
    return rows.flatMap((row, index): Found[] => [
      ...(row.checkpointId === null
        ? []
        : [{ type: 'checkpoint' as const, id: row.checkpointId, parentId: row.sandboxId }]),
      { type: 'sandbox', id: row.sandboxId, parentId: rows[index + 1]?.checkpointId ?? null },
    ])
  }

  /** Level by level, the sandbox `rootId` first. */
  const descendants = async (rootId: string, { orgId, reach }: TreeQuery, limit: number): Promise<Found[]> => {
    const isWithin = reach === undefined ? sql`true` : within(reach, 'sandboxes')
    // PostgreSQL makes no more rows of a recursion than are asked for.
    const { rows } = await sql<Found>`
      with recursive down (type, id, parent_id, generation) as (
        select 'sandbox'::text, ${rootId}::text collate "C", null::text collate "C", 0
        union all
        select below.type, below.id, below.parent_id, generation + 1
        from down cross join lateral (
          select 'checkpoint'::text as type, checkpoints.id, checkpoints.sandbox_id as parent_id
          from checkpoints
          where down.type = 'sandbox' and checkpoints.sandbox_id = down.id and checkpoints.org_id = ${orgId}
            and owner <> 'image'
          union all
          select 'sandbox', sandboxes.id, sandboxes.from_checkpoint_id
          from sandboxes
          where down.type = 'checkpoint' and sandboxes.from_checkpoint_id = down.id and sandboxes.org_id = ${orgId}
            and ${isWithin}
        ) as below
        where generation < ${2 * generationsMax}
      )
      select type, id, parent_id from down limit ${limit}`.execute(db)
    return rows
  }

  /** What they are. One that was deleted meanwhile, or is of another organisation, is left out. */
  const read = async (orgId: string, found: readonly Found[]): Promise<TreeNode[]> => {
    const idsOf = (wanted: TreeNode['type']) => found.filter(({ type }) => type === wanted).map(({ id }) => id)
    const sandboxRows = await db
      .selectFrom('sandboxes')
      .select(['id', 'name', 'status', 'reason', 'createdAt'])
      .where('orgId', '=', orgId)
      .where('id', '=', anyOf(idsOf('sandbox')))
      .execute()
    const checkpointRows = await db
      .selectFrom('checkpoints')
      .select(['id', 'name', 'status', 'error', 'kind', 'owner', 'sizeBytes', 'createdAt', 'sandboxId'])
      .where('orgId', '=', orgId)
      .where('id', '=', anyOf(idsOf('checkpoint')))
      .execute()
    const sandboxIds = new Set([...idsOf('sandbox'), ...checkpointRows.map((row) => row.sandboxId)])
    const sessionRows = await db
      .selectFrom('sessions')
      .select(['id', 'sandboxId'])
      .where('orgId', '=', orgId)
      .where('sandboxId', '=', anyOf([...sandboxIds]))
      .orderBy('createdAt')
      .execute()
    const sessions = new Map(sessionRows.map((row) => [row.sandboxId, row.id]))
    const sandboxes = new Map(sandboxRows.map((row) => [row.id, row]))
    const checkpoints = new Map(checkpointRows.map((row) => [row.id, row]))
    const sessionOf = (sandboxId: string) => {
      const sessionId = sessions.get(sandboxId)
      return sessionId === undefined ? {} : { sessionId }
    }
    return found.flatMap(({ type, id, parentId }): TreeNode[] => {
      if (type === 'sandbox') {
        const row = sandboxes.get(id)
        return row === undefined ? [] : [{ type, parentId, sandbox: present(row), ...sessionOf(id) }]
      }
      const row = checkpoints.get(id)
      if (row === undefined) return []
      const { sandboxId, ...checkpoint } = row
      const isOfSession = row.owner === 'turn' || row.owner === 'session'
      return [{ type, parentId, checkpoint: present(checkpoint), ...(isOfSession ? sessionOf(sandboxId) : {}) }]
    })
  }

  return {
    async sandboxTree(sandboxId, { limit, ...query }) {
      const above = await ancestors(sandboxId, query)
      const rootId = above.at(-1)?.id
      if (rootId === undefined) return { nodes: [], isCut: false }
      const path = above.slice(0, limit).toReversed()
      const all = await descendants(rootId, query, limit + 1)
      const distinct = new Map([...path, ...all].map((one) => [one.id, one]))
      const nodes = withParents(await read(query.orgId, [...distinct.values()].slice(0, limit)))
      return { nodes, isCut: above.length > limit || distinct.size > limit }
    },

    async treeRoot(sandboxId, query) {
      return (await ancestors(sandboxId, query)).at(-1)?.id
    },
  } satisfies Partial<SandboxStore>
}

/** A parent that does not stand before its child is none: it is deleted, or beyond the limit. So no node is above itself. */
function withParents(nodes: readonly TreeNode[]): TreeNode[] {
  const before = new Set<string>()
  return nodes.map((node) => {
    const { parentId } = node
    const kept = parentId !== null && before.has(parentId) ? parentId : null
    before.add(node.type === 'sandbox' ? node.sandbox.id : node.checkpoint.id)
    return { ...node, parentId: kept }
  })
}
