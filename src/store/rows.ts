import { sql } from 'kysely'
import type { RawBuilder } from 'kysely'

/** A row in which a column that is `null` is an absent key, as in the records of the domain. */
export type Present<Row> = {
  [Key in keyof Row as null extends Row[Key] ? never : Key]: Row[Key]
} & {
  [Key in keyof Row as null extends Row[Key] ? Key : never]?: NonNullable<Row[Key]>
}

export function present<Row extends object>(row: Row): Present<Row> {
  return Object.fromEntries(Object.entries(row).filter(([, value]) => value !== null)) as Present<Row>
}

/** The columns of an update: a key that is there with the value `undefined` clears its column, an absent one leaves it. */
export function cleared(change: object): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(change).map(([key, value]): [string, unknown] => [key, value === undefined ? null : value]),
  )
}

/** To compare with: a list as one parameter, however long it is. */
export function anyOf(ids: readonly string[]): RawBuilder<string> {
  return sql<string>`any(${[...ids]}::text[])`
}
