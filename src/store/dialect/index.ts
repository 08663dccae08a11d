import type { Dialect } from 'kysely'

/** What differs between the embedded database and a server. */
export interface Backend {
  dialect: Dialect
  /** For migrations: a connection on which no statement and no transaction has a limit of time. */
  unlimited(): Dialect
  /** Throws `unavailable` while another server might be on the database, and when the database is gone. */
  check(): void
  /** Ends what runs beside the callers' statements; called once, before the dialect's driver is destroyed. */
  stop(): Promise<void>
}
