import { sql, type Kysely, type Selectable } from 'kysely'
import type { AuditHead, AuditStore } from '../organisation/audit/index.ts'
import { auditHash, auditRoot, type ChainedEntry } from '../protocol/audit.ts'
import type { LogWriter } from './event-log.ts'
import type { AuditEntryTable, Database } from './schema.ts'
import { lenientJson } from './text.ts'

const purgedAtOnce = 5000

export function auditStore(db: Kysely<Database>, writer: LogWriter): AuditStore {
  const head = async (on: Kysely<Database>, orgId: string): Promise<AuditHead> => {
    const row = await on.selectFrom('auditHeads').selectAll().where('orgId', '=', orgId).executeTakeFirst()
    const { number = 0, hash = auditRoot, prunedNumber = 0, prunedHash = auditRoot } = row ?? {}
    return { number, hash, prunedNumber, prunedHash }
  }

  return {
    async append(entries) {
      if (entries.length === 0) return
      await db.transaction().execute(async (transaction) => {
        const heads = await lockHeads(transaction, [...new Set(entries.map(({ orgId }) => orgId))].toSorted())
        const rows = entries.map((given) => {
          const last = heads.get(given.orgId) ?? { orgId: given.orgId, number: 0, hash: auditRoot }
          const facts = stored({ ...given, ts: given.ts.toISOString(), number: last.number + 1 })
          const next = { orgId: given.orgId, number: facts.number, hash: auditHash(last.hash, facts) }
          heads.set(given.orgId, next)
          return { ...facts, previousHash: last.hash, hash: next.hash }
        })
        await sql`
          with added as (
            insert into audit_entries (org_id, number, ts, actor_type, actor_id, address, operation, request, subject, status, previous_hash, hash)
            select * from jsonb_to_recordset(${lenientJson(rows)}::jsonb) as entry ("orgId" text, number bigint, ts timestamptz,
              "actorType" text, "actorId" text, address text, operation text, request text, subject jsonb, status integer,
              "previousHash" text, hash text)
          )
          update audit_heads head set number = new.number, hash = new.hash
          from jsonb_to_recordset(${lenientJson([...heads.values()])}::jsonb) as new ("orgId" text, number bigint, hash text)
          where head.org_id = new."orgId"`.execute(transaction)
      })
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

interface Head {
  orgId: string
  number: number
  hash: string
}

/**
 * Locks the ends of chains, all transactions in the same order. The commit does not wait for the disk: an entry comes before the change that it is
 * about, so it is on the disk when that is. What has no commit of its own, such as a command, can lose the entries of the last half second in a loss
 * of power, and in nothing less.
 */
async function lockHeads(transaction: Kysely<Database>, orgIds: readonly string[]): Promise<Map<string, Head>> {
  const lock = async () => {
    const { rows } = await sql<Head>`
      select org_id, number, hash, set_config('synchronous_commit', 'off', true) from audit_heads
      where org_id = any(${[...orgIds]}::text[]) order by org_id for update`.execute(transaction)
    return rows
  }
  let locked = await lock()
  if (locked.length < orgIds.length) {
    await sql`
      insert into audit_heads (org_id, number, hash, pruned_hash)
      select org_id, 0, ${auditRoot}, ${auditRoot} from unnest(${[...orgIds]}::text[]) as org_id order by org_id
      on conflict do nothing`.execute(transaction)
    locked = await lock()
  }
  return new Map(locked.map(({ orgId, number, hash }) => [orgId, { orgId, number, hash }]))
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
