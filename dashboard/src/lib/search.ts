/** Parameters of a page's address, which anybody may have written: what has another form is left out. */

/** The router reads `?entry=812` as a number. */
export function textOf(value: unknown): string | undefined {
  if (typeof value === 'number' || typeof value === 'boolean') return String(value)
  return typeof value === 'string' && value !== '' ? value : undefined
}

export function oneOf<Choice extends string>(choices: readonly Choice[], value: unknown): Choice | undefined {
  return choices.find((choice) => choice === value)
}

/** A whole number from 1 on. */
export function countOf(value: unknown): number | undefined {
  const number = Number(textOf(value))
  return Number.isSafeInteger(number) && number > 0 ? number : undefined
}

/** A time in any form that a browser reads, as ISO 8601. */
export function timeOf(value: unknown): string | undefined {
  const text = textOf(value)
  const date = new Date(text ?? '')
  return Number.isNaN(date.getTime()) ? undefined : date.toISOString()
}

/** Without the fields that are undefined, so that the defaults do not stand in the address. */
export function defined<Fields extends object>(fields: Fields): Defined<Fields> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Defined<Fields>
}

type Defined<Fields> = { [Name in keyof Fields]?: Exclude<Fields[Name], undefined> }
