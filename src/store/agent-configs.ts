import { createHash } from 'node:crypto'
import { sql } from 'kysely'
import type { ExpressionBuilder, Kysely } from 'kysely'
import { FairYield } from '../lib/async/fair-yield.ts'
import type { AgentConfig } from '../session/session.ts'
import type { Instructions } from '../session/store.ts'
import type { Database } from './schema.ts'
import { jsonTexts, strictJson } from './text.ts'

/** Of megabytes each. */
const purgedAtOnce = 16
/** Configurations that come with the rows of sessions, each of which can have as many variables as fit into an environment. */
const readAtOnce = 8

/** What is inserted of a configuration. */
export interface AgentConfigRow {
  hash: string
  config: string
  skills: string
}

/** Of the texts of new configurations: a piece takes some milliseconds. */
const writing = new FairYield(1)

/**
 * The row of a configuration. Its skills, which can be megabytes, are made into text piece by piece; what they hold must not change
 * meanwhile.
 */
export async function agentConfigRow({ skills, ...rest }: AgentConfig): Promise<AgentConfigRow> {
  const config = strictJson(rest, 'agent_config')
  const hash = createHash('sha256').update(`${config}\n`)
  const texts: string[] = []
  for (const text of jsonTexts(skills, 'agent_config.skills')) {
    hash.update(text)
    texts.push(text)
    await writing.next()
  }
  return { hash: hash.digest('hex'), config, skills: texts.join('') }
}

/** Writes a configuration unless it is there. */
export async function putAgentConfig(db: Kysely<Database>, row: AgentConfigRow): Promise<void> {
  await db
    .insertInto('agentConfigs')
    .values(row)
    // Not `do nothing`: the row is locked until the session that needs it is there, so that no purge takes it.
    .onConflict((conflict) => conflict.column('hash').doUpdateSet({ hash: row.hash }))
    .execute()
}

/** Removes those that no session has any more, a few at a time: others use the database meanwhile. */
export async function purgeAgentConfigs(db: Kysely<Database>): Promise<void> {
  while (await purgeSome(db));
}

async function purgeSome(db: Kysely<Database>): Promise<boolean> {
  return await db.transaction().execute(async (transaction) => {
    const configs = transaction.selectFrom('agentConfigs').select('hash').where(isUnused).limit(purgedAtOnce)
    // Locked first: whoever writes one of them anew meanwhile has its session by then, which the next statement sees.
    const unused = await configs.forUpdate().execute()
    if (unused.length === 0) return false
    const hashes = unused.map(({ hash }) => hash)
    await transaction.deleteFrom('agentConfigs').where('hash', 'in', hashes).where(isUnused).execute()
    return true
  })
}

/** Of many at once, by hash, without what can be megabytes: system prompt and skills. */
export async function readAgentConfigs(
  db: Kysely<Database>,
  hashes: readonly string[],
): Promise<Map<string, AgentConfig>> {
  const short = sql<Omit<AgentConfig, 'skills'>>`config - 'systemPrompt'`.as('config')
  const configs = new Map<string, AgentConfig>()
  for (let start = 0; start < hashes.length; start += readAtOnce) {
    const some = hashes.slice(start, start + readAtOnce)
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
  return { skillPaths, ...(systemPrompt === null ? {} : { systemPrompt }) }
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
