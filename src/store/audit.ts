import { sql, type Kysely, type Selectable } from 'kysely'
import type { AuditHead, AuditStore, NewAuditEntry } from '../organisation/audit/index.ts'
import { auditHash, auditRoot, type ChainedEntry } from '../protocol/audit.ts'
import type { LogWriter } from './event-log.ts'
import type { AuditEntryTable, Database } from './schema.ts'
import { lenientJson } from './text.ts'

const purgedAtOnce = 5000
const attemptsMax = 5

export function auditStore(db: Kysely<Database>, writer: LogWriter): AuditStore {
  const head = async (on: Kysely<Database>, orgId: string): Promise<AuditHead> => {
    const row = await on.selectFrom('auditHeads').selectAll().where('orgId', '=', orgId).executeTakeFirst()
    const { number = 0, hash = auditRoot, prunedNumber = 0, prunedHash = auditRoot } = row ?? {}
    return { number, hash, prunedNumber, prunedHash }
  }

  /** Known ends of chains: this server is the only writer of its database. */
  const ends = new Map<string, End>()

  return {
    async append(entries) {
      let left = entries
      // A chain that has grown by another hand, or is gone, is read again.
      for (let attempt = 0; left.length > 0; attempt++) {
        if (attempt === attemptsMax) throw new Error('the chains of the audit change under their writer')
        const orgIds = [...new Set(left.map(({ orgId }) => orgId))]
        for (const found of await read(
          db,
          orgIds.filter((orgId) => !ends.has(orgId)),
        )) {
          ends.set(found.orgId, found)
        }
        const grown = await grow(db, left, ends)
        for (const orgId of orgIds) ends.delete(orgId)
        for (const end of grown) ends.set(end.orgId, end)
        left = left.filter(({ orgId }) => !ends.has(orgId))
      }
    },

    async list(orgId, { actorId, operation, subject, from, to, status, before, limit }) {
      let query = db
        .selectFrom('auditEntries')
        .selectAll()
        .where('orgId', '=', orgId)
        .orderBy('number', 'desc')
        .limit(limit)
      if (before !== undefined) query = query.where('number', '<', before)
      if (actorId !== undefined) query = query.where('actorId', '=', actorId)
      if (operation !== undefined) query = query.where('operation', '=', operation)
      if (from !== undefined) query = query.where('ts', '>=', from)
      if (to !== undefined) query = query.where('ts', '<', to)
      if (status !== undefined)
        query = status === 'ok' ? query.where('status', 'is', null) : query.where('status', '=', status)
      if (subject !== undefined) {
        query = query.where(
          sql<boolean>`exists (select from jsonb_each_text(subject) as part where part.value = ${subject})`,
        )
      }
      return (await query.execute()).map(toEntry)
    },

    async page(orgId, after, limit) {
      const rows = await db
        .selectFrom('auditEntries')
        .selectAll()
        .where('orgId', '=', orgId)
        .where('number', '>', after)
        .orderBy('number')
        .limit(limit)
        .execute()
      return rows.map(toEntry)
    },

    head: (orgId) => head(db, orgId),

    async tellHead(orgId, always = false) {
      return await writer.transaction(db, async (transaction, note) => {
        const now = await head(transaction, orgId)
        const { numUpdatedRows } = await transaction
          .updateTable('auditHeads')
          .set({ toldNumber: now.number })
          .where('orgId', '=', orgId)
          .where((eb) => (always ? eb.lit(true) : eb('toldNumber', '<', now.number)))
          .executeTakeFirst()
        const { number, hash } = now
        if (numUpdatedRows > 0n) note(orgId, { type: 'audit.head', subject: orgId, data: { number, hash } })
        return now
      })
    },

    async organisations() {
      // Of those that still are: the log of others is gone.
      const rows = await db
        .selectFrom('auditHeads')
        .innerJoin('organisations', 'organisations.id', 'auditHeads.orgId')
        .select('orgId')
        .execute()
      return rows.map(({ orgId }) => orgId)
    },

    async purge(before, rowsMax) {
      let count = 0
      const heads = await db.selectFrom('auditHeads').select(['orgId', 'number']).execute()
      for (const { orgId, number } of heads) {
        for (let deleted = purgedAtOnce; deleted >= purgedAtOnce;) {
          deleted = await deleteOldest(db, orgId, { before, upTo: number - rowsMax })
          count += deleted
        }
      }
      return count
    },
  }
}

/** Of a chain: its newest entry. */
interface End {
  orgId: string
  number: number
  hash: string
}

async function read(db: Kysely<Database>, orgIds: readonly string[]): Promise<End[]> {
  if (orgIds.length === 0) return []
  const rows = await db
    .selectFrom('auditHeads')
    .select(['orgId', 'number', 'hash'])
    .where('orgId', 'in', orgIds)
    .execute()
  const found = new Map(rows.map((row) => [row.orgId, row]))
  return orgIds.map((orgId) => found.get(orgId) ?? { orgId, number: 0, hash: auditRoot })
}

/**
 * Adds entries behind `ends` and returns the new ends: those of the chains that had these ends. It is one statement, since commands wait for it,
 * and its commit does not wait for the disk: an entry comes before the change that it is about, so it is on the disk when that is. What has no
 * commit of its own, such as a command, can lose the entries of the last half second in a loss of power, and in nothing less.
 */
async function grow(
  db: Kysely<Database>,
  entries: readonly NewAuditEntry[],
  ends: ReadonlyMap<string, End>,
): Promise<End[]> {
  const grown = new Map<string, End & { after: string }>()
  const rows = entries.map((given) => {
    const { orgId } = given
    const last = grown.get(orgId) ?? ends.get(orgId) ?? { number: 0, hash: auditRoot }
    const facts = stored({ ...given, ts: given.ts.toISOString(), number: last.number + 1 })
    const hash = auditHash(last.hash, facts)
    const after = grown.get(orgId)?.after ?? last.hash
    grown.set(orgId, { orgId, number: facts.number, hash, after })
    return { ...facts, previousHash: last.hash, hash }
  })
  const { rows: moved } = await sql<End>`/* prepared audit */
    with given as (
      select * from jsonb_to_recordset(${lenientJson([...grown.values()])}::jsonb) as given ("orgId" text, number bigint, hash text, after text)
    ), moved as (
      insert into audit_heads as head (org_id, number, hash, pruned_hash)
      select "orgId", number, hash, ${auditRoot} from given
      where after = ${auditRoot} or exists (select from audit_heads where org_id = "orgId") order by "orgId"
      on conflict (org_id) do update set number = excluded.number, hash = excluded.hash
        where head.hash = (select after from given where "orgId" = excluded.org_id)
      returning head.org_id, head.number, head.hash
    ), added as (
      insert into audit_entries (org_id, number, ts, actor_type, actor_id, address, operation, request, subject, status, previous_hash, hash)
      select entry.* from jsonb_to_recordset(${lenientJson(rows)}::jsonb) as entry ("orgId" text, number bigint, ts timestamptz,
        "actorType" text, "actorId" text, address text, operation text, request text, subject jsonb, status integer,
        "previousHash" text, hash text)
      where "orgId" in (select org_id from moved)
    )
    select org_id, number, hash, set_config('synchronous_commit', 'off', true) from moved`.execute(db)
  return moved.map(({ orgId, number, hash }) => ({ orgId, number, hash }))
}

/** Deletes entries from the first on, and notes the last of them in the same transaction: the chain goes on from it. */
async function deleteOldest(
  db: Kysely<Database>,
  orgId: string,
  { before, upTo }: { before: Date; upTo: number },
): Promise<number> {
  return await db.transaction().execute(async (transaction) => {
    const oldest = await transaction
      .selectFrom('auditEntries')
      .select(['number', 'ts', 'hash'])
      .where('orgId', '=', orgId)
      .orderBy('number')
      .limit(purgedAtOnce)
      .execute()
    const kept = oldest.findIndex(({ number, ts }) => number > upTo && ts >= before)
    const gone = kept === -1 ? oldest : oldest.slice(0, kept)
    const last = gone.at(-1)
    if (last === undefined) return 0
    await transaction.deleteFrom('auditEntries').where('orgId', '=', orgId).where('number', '<=', last.number).execute()
    await transaction
      .updateTable('auditHeads')
      .set({ prunedNumber: last.number, prunedHash: last.hash })
      .where('orgId', '=', orgId)
      .execute()
    return gone.length
  })
}

/** As it reads again: NUL and lone surrogates are replaced before they are hashed. */
function stored<Facts extends object>(facts: Facts): Facts {
  return JSON.parse(lenientJson(facts)) as Facts
}

function toEntry(row: Selectable<AuditEntryTable>): ChainedEntry {
  return { ...row, ts: row.ts.toISOString() }
}
