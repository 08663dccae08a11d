import { sql, type RawBuilder } from 'kysely'
import { ServiceError } from '../errors.ts'
import type { KeyReach } from '../lib/key-reach.ts'

/** A row as a record of the domain: a column that is `null` becomes an absent key. */
export type Present<Row> = {
  [Key in keyof Row as null extends Row[Key] ? never : Key]: Row[Key]
} & {
  [Key in keyof Row as null extends Row[Key] ? Key : never]?: NonNullable<Row[Key]>
}

export function present<Row extends object>(row: Row): Present<Row> {
  return Object.fromEntries(Object.entries(row).filter(([, value]) => value !== null)) as Present<Row>
}

/** The columns of an update: a key with the value `undefined` clears its column, an absent key leaves it. */
export function cleared(change: object): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(change).map(([key, value]): [string, unknown] => [key, value === undefined ? null : value]),
  )
}

/** Selects the rows of one organisation, or all. */
export function ownedBy(orgId: string | undefined): RawBuilder<boolean> {
  return orgId === undefined ? sql<boolean>`true` : sql<boolean>`org_id = ${orgId}`
}

/** Selects the rows of what a key with a name prefix reaches; `table` has a name and the key that made it. */
export function within(reach: KeyReach, table: 'sandboxes' | 'sessions'): RawBuilder<boolean> {
  const { namePrefix, keyId } = reach
  const [name, key] = [sql.ref(`${table}.name`), sql.ref(`${table}.keyId`)]
  return sql<boolean>`(starts_with(${name}, ${namePrefix}) or ${key} = ${keyId})`
}

/** `= any(…)`: passes a list of any length as one parameter. */
export function anyOf(ids: readonly string[]): RawBuilder<string> {
  return sql<string>`any(${[...ids]}::text[])`
}

/** The last row of a page. The next page begins after it, also when rows were added or removed meanwhile. */
export interface Position {
  createdAt: Date
  id: string
}

/** Opaque to clients: base64url of the milliseconds and the id. */
export function encodeCursor({ createdAt, id }: Position): string {
  return Buffer.from(`${createdAt.getTime()}:${id}`).toString('base64url')
}

export function decodeCursor(cursor: string): Position {
  const [, milliseconds, id] = /^(\d{1,14}):([\w-]{1,64})$/.exec(Buffer.from(cursor, 'base64url').toString()) ?? []
  if (milliseconds === undefined || id === undefined) {
    throw new ServiceError('invalid_request', 'cursor is not one that this list answered with')
  }
  return { createdAt: new Date(Number(milliseconds)), id }
}

/** Cuts a page from `limit + 1` rows: the extra row shows that there is a next page. */
export function page<Item extends Position>(rows: Item[], limit: number): { items: Item[]; nextCursor?: string } {
  const items = rows.slice(0, limit)
  const last = items.at(-1)
  return rows.length > limit && last !== undefined ? { items, nextCursor: encodeCursor(last) } : { items }
}
