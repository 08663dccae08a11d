import { Logger, runMigrations } from 'graphile-worker'
import { sql, type Kysely, type Transaction } from 'kysely'
import { singleFlight } from '../lib/async/single-flight.ts'
import { deliverTask, jobMaxAttempts, queueSchema } from '../webhook/queue.ts'
import type { Database } from './schema.ts'

/** The tables of the library that runs the jobs of deliveries. They are made when the first destination is. */
export class WebhookQueue {
  #isReady = false
  readonly #migrate: () => Promise<void>

  constructor(databaseUrl: string) {
    const logger = new Logger(() => () => undefined)
    this.#migrate = singleFlight(async () => {
      await runMigrations({ connectionString: databaseUrl, schema: queueSchema, maxPoolSize: 2, logger })
      this.#isReady = true
    })
  }

  async ready(): Promise<void> {
    if (!this.#isReady) await this.#migrate()
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
