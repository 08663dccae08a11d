import { sql, type Kysely } from 'kysely'
import type { EgressStore } from '../sandbox/index.ts'
import type { LogWriter } from './event-log.ts'
import { egressDeniedEntry } from '../sandbox/log-entries.ts'
import type { Database } from './schema.ts'
import { lenientJson, strictJson } from './text.ts'

/** Authorities, policies of organisations, and the log of what sandboxes have asked for outside. */
export function egressStore(db: Kysely<Database>, writer: LogWriter): EgressStore {
  return {
    async authority(id) {
      return await db
        .selectFrom('egressAuthorities')
        .select(['id', 'orgId', 'certificate', 'sealedKey'])
        .where('id', '=', id)
        .executeTakeFirst()
    },

    async insertAuthority(authority) {
      await db.insertInto('egressAuthorities').values(authority).execute()
    },

    async organisationPolicy(orgId) {
      const row = await db.selectFrom('organisations').select('egress').where('id', '=', orgId).executeTakeFirst()
      return row?.egress ?? undefined
    },

    async setOrganisationPolicy(orgId, policy) {
      const egress = policy === undefined ? null : strictJson(policy, 'egress')
      await db.updateTable('organisations').set({ egress }).where('id', '=', orgId).execute()
    },

    async imagePolicy(checkpointId) {
      const row = await db
        .selectFrom('images')
        .select('egress')
        .where('checkpointId', '=', checkpointId)
        .where('egress', 'is not', null)
        .executeTakeFirst()
      return row?.egress ?? undefined
    },

    async setImagePolicy(checkpointId, policy) {
      const egress = policy === undefined ? null : strictJson(policy, 'egress')
      await db.updateTable('images').set({ egress }).where('checkpointId', '=', checkpointId).execute()
    },

    async lastNumber(sandboxId) {
      const { rows } = await sql<{ number: number }>`
        select coalesce(max(number), 0)::integer as number from egress_log where sandbox_id = ${sandboxId}`.execute(db)
      return rows[0]?.number ?? 0
    },

    async append(added) {
      if (added.length === 0) return
      const rows = added.map(({ orgId, number, entry }) => ({
        org_id: orgId,
        sandbox_id: entry.sandbox,
        number,
        at: new Date(entry.time),
        entry,
      }))
      await writer.transaction(db, async (transaction, note) => {
        // A sandbox may have been purged meanwhile; an entry that a former server wrote under the number stays.
        await sql`
          insert into egress_log (org_id, sandbox_id, number, at, entry)
          select org_id, sandbox_id, number, at, entry
          from jsonb_to_recordset(${lenientJson(rows)}::jsonb)
            as added (org_id text, sandbox_id text, number bigint, at timestamptz, entry jsonb)
          where exists (select from sandboxes where id = sandbox_id)
          on conflict do nothing`.execute(transaction)
        for (const { orgId, entry, isTold } of added) if (isTold) note(orgId, egressDeniedEntry(entry))
      })
    },

    async entries(sandboxId, { after = 0, newest = false, limit, decision }) {
      let query = db
        .selectFrom('egressLog')
        .select(['number', 'entry'])
        .where('sandboxId', '=', sandboxId)
        .orderBy('number', newest ? 'desc' : 'asc')
        .limit(limit)
      if (!newest) query = query.where('number', '>', after)
      if (decision !== undefined) query = query.where(sql<boolean>`entry ->> 'decision' = ${decision}`)
      const rows = await query.execute()
      return newest ? rows.toReversed() : rows
    },

    async trim(sandboxId, upTo) {
      await db.deleteFrom('egressLog').where('sandboxId', '=', sandboxId).where('number', '<=', upTo).execute()
    },

    async removeUnused(madeBefore) {
      // A record that is about to be made names what was made just before.
      const authorities = await sql`
        delete from egress_authorities where created_at < ${madeBefore}
          and not exists (select from sandboxes where status <> 'stopped' and egress ->> 'authorityId' = egress_authorities.id)
          and not exists (select from checkpoints where sandbox_config -> 'egress' ->> 'authorityId' = egress_authorities.id)`.execute(
        db,
      )
      const stores = await sql`
        delete from secret_stores where sandbox_id is not null and created_at < ${madeBefore}
          and not exists (select from sandboxes where status <> 'stopped' and egress -> 'inline' ? secret_stores.sandbox_id)
          and not exists (select from checkpoints where sandbox_config -> 'egress' -> 'inline' ? secret_stores.sandbox_id)`.execute(
        db,
      )
      return Number((authorities.numAffectedRows ?? 0n) + (stores.numAffectedRows ?? 0n))
    },
  }
}
