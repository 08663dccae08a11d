import type { Dialect } from 'kysely'

/** What differs between the embedded database and a server. */
export interface Backend {
  dialect: Dialect
  /** Throws `unavailable` while another server might be on the database. */
  check(): void
  /** Ends what runs beside the callers' statements; called once, before the dialect's driver is destroyed. */
  stop(): Promise<void>
}
