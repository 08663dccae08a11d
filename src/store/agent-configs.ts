import { createHash } from 'node:crypto'
import { sql } from 'kysely'
import type { ExpressionBuilder, Kysely } from 'kysely'
import type { AgentConfig } from '../session/session.ts'
import type { Database } from './schema.ts'
import { strictJson } from './text.ts'

/** Of JSON text; what is parsed from it takes about twice that. */
const cacheBytesMax = 32 * 1024 * 1024
/** Of megabytes each. */
const purgedAtOnce = 16

/**
 * Agent configurations by the hash of their text. They can hold megabytes of skills and never change, so a session's row
 * holds the hash alone and a commit neither reads nor parses them again.
 */
export class AgentConfigs {
  /** In order of last use, oldest first. */
  readonly #cache = new Map<string, { config: AgentConfig; bytes: number }>()
  #cachedBytes = 0

  /** Writes the configuration unless it is there, and returns its hash. */
  async put(db: Kysely<Database>, { skills, ...rest }: AgentConfig): Promise<string> {
    const row = { config: strictJson(rest, 'agent_config'), skills: strictJson(skills, 'agent_config.skills') }
    const hash = createHash('sha256').update(`${row.config}\n${row.skills}`).digest('hex')
    await db
      .insertInto('agentConfigs')
      .values({ hash, ...row })
      // Not `do nothing`: the row is locked until the session that needs it is there, so that no purge takes it.
      .onConflict((conflict) => conflict.column('hash').doUpdateSet({ hash }))
      .execute()
    return hash
  }

  /** Removes those that no session has any more, a few at a time: others use the database meanwhile. */
  async purge(db: Kysely<Database>): Promise<void> {
    for (;;) {
      const unused = await db.selectFrom('agentConfigs').select('hash').where(isUnused).limit(purgedAtOnce).execute()
      if (unused.length === 0) return
      const hashes = unused.map(({ hash }) => hash)
      await db.deleteFrom('agentConfigs').where('hash', 'in', hashes).where(isUnused).execute()
    }
  }

  /** The same frozen object for each caller. */
  async get(db: Kysely<Database>, hash: string): Promise<AgentConfig> {
    const cached = this.#cache.get(hash)
    if (cached !== undefined) {
      this.#cache.delete(hash)
      this.#cache.set(hash, cached)
      return cached.config
    }
    const row = await db
      .selectFrom('agentConfigs')
      .select(['config', 'skills'])
      .where('hash', '=', hash)
      .executeTakeFirstOrThrow()
    const config = { ...row.config, skills: row.skills }
    this.#keep(hash, deepFreeze(config), JSON.stringify(config).length)
    return config
  }

  /** Of many at once, by hash, without what can be megabytes: system prompt and skills. */
  async withoutTexts(db: Kysely<Database>, hashes: readonly string[]): Promise<Map<string, AgentConfig>> {
    if (hashes.length === 0) return new Map()
    const short = sql<Omit<AgentConfig, 'skills'>>`config - 'systemPrompt'`.as('config')
    const rows = await db.selectFrom('agentConfigs').select(['hash', short]).where('hash', 'in', hashes).execute()
    return new Map(rows.map(({ hash, config }) => [hash, { ...config, skills: {} }]))
  }

  #keep(hash: string, config: AgentConfig, bytes: number): void {
    this.#cachedBytes += bytes - (this.#cache.get(hash)?.bytes ?? 0)
    this.#cache.set(hash, { config, bytes })
    for (const [oldest, entry] of this.#cache) {
      if (this.#cachedBytes <= cacheBytesMax) return
      this.#cache.delete(oldest)
      this.#cachedBytes -= entry.bytes
    }
  }
}

function isUnused(eb: ExpressionBuilder<Database, 'agentConfigs'>) {
  return eb.not(eb.exists(eb.selectFrom('sessions').select('id').whereRef('agentConfigHash', '=', 'agentConfigs.hash')))
}

function deepFreeze<Value extends object>(value: Value): Value {
  for (const inner of Object.values(value)) {
    if (typeof inner === 'object' && inner !== null) deepFreeze(inner as object)
  }
  return Object.freeze(value)
}
