/**
 * What a value of a request may be. The shapes of a wire are an allow-list: a field that no shape names is refused, so that a new field of
 * a model API, which may be dear or refer to something that the account keeps, does not pass before somebody has looked at it.
 */
export interface Shape {
  /** A text, a number, true, false. `null` is served as the value of any field. */
  plain?: true
  /** Plain, and a text only if it is data or an address of the web: with other schemes some APIs find files that the account keeps. */
  isAddress?: true
  /** The shape of its items. */
  list?: Shape
  object?: ObjectShape
  /** Free-form, such as a JSON schema or the arguments of a tool: what is inside means nothing to the model API. */
  isFree?: true
  /** Cut out of the body with any value: harmless to lose, but not to send. */
  isCut?: true
  /** Plain, and cut out of the body unless it is `false`. */
  isForcedFalse?: true
  /** Served only as null, false, "" or []: some clients send every field that they know, empty. Why nothing else is. */
  onlyEmpty?: string
}

export interface ObjectShape {
  fields: ReadonlyMap<string, Shape>
  /** Shape of fields with any other name. */
  rest?: Shape
  variants?: Variants
}

/** The objects of a list that differ by `type`. */
export interface Variants {
  /** The names of the fields, by type. */
  types: ReadonlyMap<string, VariantNames>
  /** For names of types that end with a date. */
  patterns: readonly (readonly [RegExp, VariantNames])[]
  /** Names of an object without a type. Absent: a type is required. */
  untyped: VariantNames | undefined
  /** A name that an object without a type must have. */
  untypedNeeds: string | undefined
  /** The fault of an object of any other type. */
  fault: string
}

/** `all`: any of the fields. */
export type VariantNames = ReadonlySet<string> | 'all'

export type Fields = Readonly<Record<string, Shape>>

export const plain: Shape = { plain: true }
export const address: Shape = { plain: true, isAddress: true }
export const free: Shape = { isFree: true }
export const cut: Shape = { isCut: true }
export const forcedFalse: Shape = { plain: true, isForcedFalse: true }
export const dear: Shape = { onlyEmpty: 'its cost is not reported in tokens' }
export const kept: Shape = { onlyEmpty: 'it refers to an object in the account of the model API' }
export const unused: Shape = { onlyEmpty: 'it was not reviewed' }

export function list(items: Shape): Shape {
  return { list: items }
}

export function object(fields: Fields): Shape {
  return { object: { fields: new Map(Object.entries(fields)) } }
}

/** An object with names of the client's choice. */
export function mapOf(values: Shape): Shape {
  return { object: { fields: new Map(), rest: values } }
}

interface UnionOptions {
  /** Fields of objects whose `type` matches. */
  patterns?: readonly (readonly [RegExp, Fields])[]
  untyped?: Fields
  untypedNeeds?: string
  fault?: string
}

/**
 * Objects that differ by their field `type`, which each has besides its own. It may come last, so a field has one shape in all types: the
 * sum of its shapes in each.
 */
export function union(types: Readonly<Record<string, Fields>>, options: UnionOptions = {}): Shape {
  const { patterns = [], untyped, untypedNeeds, fault = 'must be one of the served types' } = options
  const all = [...Object.values(types), ...patterns.map(([, fields]) => fields), ...(untyped ? [untyped] : [])]
  const fields = new Map<string, Shape>([['type', plain]])
  for (const [name, shape] of all.flatMap((own) => Object.entries(own))) {
    const other = fields.get(name)
    fields.set(name, other ? sum(other, shape) : shape)
  }
  const names = (own: Fields) => new Set(['type', ...Object.keys(own)])
  return {
    object: {
      fields,
      variants: {
        types: new Map(Object.entries(types).map(([type, own]) => [type, names(own)])),
        patterns: patterns.map(([pattern, own]) => [pattern, names(own)] as const),
        untyped: untyped && names(untyped),
        untypedNeeds,
        fault,
      },
    },
  }
}

/** The sum of two shapes: it serves what either serves. Two different shapes of lists or of objects have none. */
export function sum(one: Shape, other: Shape): Shape {
  if (one === other) return one
  for (const key of ['list', 'object', 'isFree', 'isCut', 'isForcedFalse', 'onlyEmpty'] as const) {
    if (one[key] !== undefined && other[key] !== undefined && one[key] !== other[key]) throw new Error(`two ${key}`)
  }
  return { ...one, ...other }
}
