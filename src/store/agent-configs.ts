import { createHash } from 'node:crypto'
import { sql, type ExpressionBuilder, type Kysely, type Transaction } from 'kysely'
import { FairYield } from '../lib/async/fair-yield.ts'
import { defined } from '../lib/defined.ts'
import type { AgentConfig } from '../session/session.ts'
import type { AgentConfigChange, Instructions } from '../session/store.ts'
import type { Database } from './schema.ts'
import { jsonTexts, strictJson } from './text.ts'

/** Configurations per statement, whose time is limited: each can have megabytes. */
const deleteBatchMax = 100
/** Small, because each configuration can have a whole environment of variables. */
const readBatchMax = 8

export interface AgentConfigRow {
  hash: string
  config: string
  skills: string
}

/** Shared by all new configurations: one piece of text takes some milliseconds. */
const textPieces = new FairYield(1)

/**
 * Builds the row of a configuration. The skills can be megabytes and become text piece by piece, so the caller must not change them
 * meanwhile.
 */
export async function agentConfigRow({ skills, ...rest }: AgentConfig): Promise<AgentConfigRow> {
  const config = strictJson(rest, 'agent_config')
  const hash = createHash('sha256').update(`${config}\n`)
  const texts: string[] = []
  for (const text of jsonTexts(skills, 'agent_config.skills')) {
    hash.update(text)
    texts.push(text)
    await textPieces.next()
  }
  return { hash: hash.digest('hex'), config, skills: texts.join('') }
}

/** Inserts a configuration unless it exists. Returns its key. */
export async function putAgentConfig(db: Kysely<Database>, row: AgentConfigRow): Promise<string> {
  await db
    .insertInto('agentConfigs')
    .values(row)
    // Not `do nothing`: the update locks the row until the session that needs it is inserted, so no delete removes it.
    .onConflict((conflict) => conflict.column('hash').doUpdateSet({ hash: row.hash }))
    .execute()
  return row.hash
}

/**
 * The configuration of a session, which nobody deletes during the transaction. Throws when there is no such session.
 */
export async function lockAgentConfig(transaction: Transaction<Database>, sessionId: string): Promise<string> {
  const configs = ofSession(transaction, sessionId).select('hash').forKeyShare()
  // One that is deleted during the statement has another in its place.
  return ((await configs.executeTakeFirst()) ?? (await configs.executeTakeFirstOrThrow())).hash
}

/**
 * Gives a session a configuration of its own with these values. The skills, which can be megabytes, are not read: the new key is the SHA-256 of
 * the text of the rest and of the old key, which stands for them. A key of `agentConfigRow` has a brace there.
 */
export async function changeAgentConfig(
  db: Kysely<Database>,
  sessionId: string,
  change: AgentConfigChange,
): Promise<void> {
  const set = strictJson(change, 'agent_config')
  const cleared = Object.entries(change).flatMap(([key, value]) => (value === undefined ? [key] : []))
  const left = await db.transaction().execute(async (transaction) => {
    const session = transaction.selectFrom('sessions').select('agentConfigHash').where('id', '=', sessionId)
    const row = await session.forUpdate().executeTakeFirst()
    if (row === undefined) return undefined
    const old = row.agentConfigHash
    const { rows } = await sql<{ hash: string }>`
      insert into agent_configs (hash, config, skills)
      select encode(sha256(convert_to(changed.config::text || E'\\n' || hash, 'UTF8')), 'hex'), changed.config, skills
      from agent_configs,
        lateral (select (agent_configs.config || ${set}::jsonb) - ${cleared}::text[] as config) as changed
      where hash = ${old} and changed.config <> agent_configs.config
      on conflict (hash) do update set hash = excluded.hash
      returning hash`.execute(transaction)
    const agentConfigHash = rows[0]?.hash
    if (agentConfigHash === undefined) return undefined
    const updated = transaction.updateTable('sessions').set({ agentConfigHash, updatedAt: new Date() })
    await updated.where('id', '=', sessionId).execute()
    return old
  })
  // Not left to the end of sessions: a client can change one as often as it likes.
  if (left !== undefined) await deleteUnusedBatch(db, left)
}

/** Deletes in batches, each a transaction that locks what it deletes. */
export async function deleteUnusedAgentConfigs(db: Kysely<Database>): Promise<void> {
  while (await deleteUnusedBatch(db));
}

/** `only`: no other one. */
async function deleteUnusedBatch(db: Kysely<Database>, only?: string): Promise<boolean> {
  return await db.transaction().execute(async (transaction) => {
    let configs = transaction.selectFrom('agentConfigs').select('hash').where(isUnused).limit(deleteBatchMax)
    if (only !== undefined) configs = configs.where('hash', '=', only)
    // Lock first: a transaction that inserts one of them again has inserted its session when the lock is granted, and the delete sees it.
    const unused = await configs.forUpdate().execute()
    if (unused.length === 0) return false
    const hashes = unused.map(({ hash }) => hash)
    await transaction.deleteFrom('agentConfigs').where('hash', 'in', hashes).where(isUnused).execute()
    return true
  })
}

/** Reads configurations by hash, without system prompt and skills, which can have megabytes. */
export async function readAgentConfigs(
  db: Kysely<Database>,
  hashes: readonly string[],
): Promise<Map<string, AgentConfig>> {
  const short = sql<Omit<AgentConfig, 'skills'>>`config - 'systemPrompt'`.as('config')
  const configs = new Map<string, AgentConfig>()
  for (let start = 0; start < hashes.length; start += readBatchMax) {
    const some = hashes.slice(start, start + readBatchMax)
    const rows = await db.selectFrom('agentConfigs').select(['hash', short]).where('hash', 'in', some).execute()
    for (const { hash, config } of rows) configs.set(hash, { ...config, skills: {} })
  }
  return configs
}

export async function readInstructions(db: Kysely<Database>, sessionId: string): Promise<Instructions | undefined> {
  const row = await ofSession(db, sessionId)
    .select([
      sql<string | null>`config ->> 'systemPrompt'`.as('systemPrompt'),
      sql<string[]>`array(select jsonb_object_keys(skills))`.as('skillPaths'),
    ])
    .executeTakeFirst()
  if (row === undefined) return undefined
  const { systemPrompt, skillPaths } = row
  return { skillPaths, ...defined({ systemPrompt: systemPrompt ?? undefined }) }
}

export async function readSkills(db: Kysely<Database>, sessionId: string): Promise<AgentConfig['skills']> {
  return (await ofSession(db, sessionId).select('skills').executeTakeFirst())?.skills ?? {}
}

function ofSession(db: Kysely<Database>, sessionId: string) {
  const hash = (eb: ExpressionBuilder<Database, 'agentConfigs'>) =>
    eb.selectFrom('sessions').select('agentConfigHash').where('id', '=', sessionId)
  return db.selectFrom('agentConfigs').where('hash', '=', hash)
}

function isUnused(eb: ExpressionBuilder<Database, 'agentConfigs'>) {
  return eb.not(eb.exists(eb.selectFrom('sessions').select('id').whereRef('agentConfigHash', '=', 'agentConfigs.hash')))
}
