import type { Dialect } from 'kysely'

/** The differences between the embedded database and a server. */
export interface Backend {
  dialect: Dialect
  /** For migrations: a connection without timeouts for statements and transactions. */
  unlimited(): Dialect
  /** Throws `unavailable` while another server might use the database, and once the database has died. */
  check(): void
  /** Releases the lock or the thread. Called once, before the dialect's driver is destroyed. */
  stop(): Promise<void>
}
