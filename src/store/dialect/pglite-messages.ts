/**
 * What the server's main thread and the thread of the embedded database say to each other:
 *
 *     main                                    worker
 *       ◄──────────────────────── ready ────────
 *       ── request {id, …} ────────────────────►
 *       ◄──────────── rows | failed {id, …} ────   one for each request, in their order
 *       ◄──────────────────── broken {why} ─────   the last one
 *
 * Rows come with their values made, dates and parsed JSON included: a structured clone of them costs the main thread less than
 * making them from text.
 */

export type PgliteRequest = { id: number } & (
  | { kind: 'query'; sql: string; parameters: readonly unknown[] }
  | { kind: 'begin' | 'commit' | 'rollback' | 'close' }
)

export type PgliteAnswer =
  | { kind: 'ready' }
  | { kind: 'rows'; id: number; rows: unknown[]; affectedRows: number }
  | { kind: 'failed'; id: number; error: ErrorFields }
  | { kind: 'broken'; why: string }

/** Of an error of PostgreSQL (its manual, section 55.8). Values of a statement are left out: they do not belong in a log. */
const fieldNames = ['severity', 'code', 'detail', 'hint', 'schema', 'table', 'column', 'constraint', 'routine'] as const

type FieldName = (typeof fieldNames)[number]

export type ErrorFields = { message: string } & Partial<Record<FieldName, string>>

/** A structured clone of an error drops all but its message. */
export function fieldsOf(error: unknown): ErrorFields {
  if (!(error instanceof Error)) return { message: String(error) }
  const found = error as Error & Partial<Record<FieldName, unknown>>
  const fields: ErrorFields = { message: error.message }
  for (const name of fieldNames) {
    const value = found[name]
    if (typeof value === 'string') fields[name] = value
  }
  return fields
}

/** An error of the database, as the driver of a PostgreSQL server throws it. */
export class EmbeddedDatabaseError extends Error {
  constructor({ message, ...fields }: ErrorFields) {
    super(message)
    this.name = 'EmbeddedDatabaseError'
    Object.assign(this, fields)
  }
}
