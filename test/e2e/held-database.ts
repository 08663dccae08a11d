import { once } from 'node:events'
import pg from 'pg'
import { eventually } from '../../src/lib/testing/eventually.ts'
import { execute, freshDatabase, type TestDatabase, valuesOf } from '../support/database.ts'
import type { AtollServer } from './server.ts'

/** A kind of statement: what a trigger is made for. */
export interface Statement {
  event: string
  when?: string
  /** Statements of this kind that pass before. */
  passes?: number
}

/** Of the lock at which statements wait. */
const barrierKey = 470_012

/** The database of a server, which can hold it up at a statement. */
export class HeldDatabase {
  readonly #database: TestDatabase

  private constructor(database: TestDatabase) {
    this.#database = database
  }

  static async make(): Promise<HeldDatabase> {
    return new HeldDatabase(await freshDatabase())
  }

  get url(): string {
    return this.#database.url
  }

  async values(statement: string, parameters?: unknown[]): Promise<unknown[]> {
    return await valuesOf(this.url, statement, parameters)
  }

  async drop(): Promise<void> {
    await this.#database.drop()
  }

  /** Kills the server while the database holds it up at a statement to which `work` leads, which is then lost, and starts it again. */
  async killAt(server: AtollServer, { event, when = 'true', passes = 0 }: Statement, work: () => Promise<unknown>) {
    await execute(
      this.url,
      `create sequence hold_up_calls;
      create function hold_up() returns trigger language plpgsql as $$ begin
        if nextval('hold_up_calls') > ${passes} then perform pg_advisory_xact_lock_shared(${barrierKey}); end if;
        return new;
      end $$;
      create trigger hold_up before ${event} for each row when (${when}) execute function hold_up()`,
    )
    const barrier = new pg.Client({ connectionString: this.url })
    await barrier.connect()
    const waiting = `select 1 from pg_locks where locktype = 'advisory' and objid = ${barrierKey} and not granted`
    try {
      await barrier.query('select pg_advisory_lock($1)', [barrierKey])
      let result: unknown
      const worked = work().then(
        (value) => (result = value ?? 'nothing'),
        (error: unknown) => (result = error),
      )
      const held = async () => (await barrier.query(waiting)).rowCount !== 0
      await eventually(async () => result !== undefined || (await held()), { what: event })
      if (!(await held())) throw new Error(`it went past ${event}: ${JSON.stringify(result)}`, { cause: result })
      await server.kill()
      await worked
      const others = 'select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()'
      await barrier.query(`select pg_terminate_backend(pid, 5000) from (${others}) as others`)
    } finally {
      const ended = once(barrier, 'end')
      await barrier.end()
      await ended
    }
    await execute(this.url, 'drop function hold_up() cascade; drop sequence hold_up_calls')
    await server.restart()
  }
}
