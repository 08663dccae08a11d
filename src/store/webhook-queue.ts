import { Logger, runMigrations } from 'graphile-worker'
import { sql, type Kysely, type Transaction } from 'kysely'
import pg from 'pg'
import { singleFlight } from '../lib/async/single-flight.ts'
import { deliverTask, jobMaxAttempts, queueSchema } from '../webhook/queue.ts'
import type { Database } from './schema.ts'

/** The tables of the library that runs the jobs of deliveries. They are made when the first destination is, or a server starts that has some. */
export class WebhookQueue {
  #isReady = false
  readonly #prepare: () => Promise<void>

  /** `role` gets what the process that sends webhooks needs. Absent: it connects as this process. */
  constructor(databaseUrl: string, role?: string) {
    const logger = new Logger(() => () => undefined)
    this.#prepare = singleFlight(async () => {
      await runMigrations({ connectionString: databaseUrl, schema: queueSchema, maxPoolSize: 2, logger })
      if (role !== undefined) await grant(databaseUrl, role)
      this.#isReady = true
    })
  }

  async ready(): Promise<void> {
    if (!this.#isReady) await this.#prepare()
  }

  /** Adds a job for each pending message of these, in the transaction that has made them pending. */
  async addJobs(transaction: Transaction<Database> | Kysely<Database>, messageIds: readonly string[]): Promise<void> {
    if (messageIds.length === 0) return
    // In the order of the list, which is that of their lanes.
    await sql`
      select ${sql.id(queueSchema, 'add_job')}(
        ${deliverTask}::text, json_build_object('messageId', message.id),
        queue_name => message.destination_id || ':' || message.lane, job_key => message.id, max_attempts => ${jobMaxAttempts}::integer)
      from unnest(${[...messageIds]}::text[]) with ordinality as wanted (id, place)
      join webhook_messages message using (id)
      where message.state = 'pending' order by place`.execute(transaction)
  }
}

/**
 * Lets a role read what it sends, write what came of it, and work on the tables of the queue, whose library has turned on row security. Repeats are
 * harmless, and needed: a restored database has no grants, and a newer version of the library has more tables.
 */
async function grant(databaseUrl: string, role: string): Promise<void> {
  const to = pg.escapeIdentifier(role)
  const client = new pg.Client({ connectionString: databaseUrl })
  client.on('error', () => undefined)
  try {
    await client.connect()
    await client.query('begin')
    const { rows: secured } = await client.query<{ name: string }>(
      `select relation.oid::regclass::text as name from pg_class relation
       where relnamespace = $1::regnamespace and relrowsecurity and not exists (select from pg_policy where polrelid = relation.oid and polname = $2)`,
      [queueSchema, role],
    )
    const statements = [
      `grant usage on schema ${queueSchema} to ${to}`,
      `grant select, insert, update, delete on all tables in schema ${queueSchema} to ${to}`,
      `grant usage, select on all sequences in schema ${queueSchema} to ${to}`,
      ...secured.map(({ name }) => `create policy ${to} on ${name} to ${to} using (true) with check (true)`),
      `grant select on webhook_destinations, webhook_messages to ${to}`,
      `grant update (is_enabled, is_disabling_told, disabled_reason, failures, failing_since, circuit_until) on webhook_destinations to ${to}`,
      `grant update (attempts, state, next_attempt_at) on webhook_messages to ${to}`,
      `grant insert on webhook_attempts to ${to}`,
    ]
    for (const statement of statements) await client.query(statement)
    await client.query('commit')
  } finally {
    await client.end().catch(() => undefined)
  }
}
