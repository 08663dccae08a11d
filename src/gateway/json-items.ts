import { ServiceError } from '../errors.ts'

/** The inspected lists among the outermost fields, and the inspected names in their items. */
export interface WatchedLists {
  lists: ReadonlySet<string>
  /** In lower case. */
  names: ReadonlySet<string>
  /** Called after each item, in order. An error that it throws ends the reading. */
  onItem: (list: string, index: number, item: JsonItem) => void
}

export interface JsonItem {
  isObject: boolean
  /** Inspected fields by name: the text of a short string, `undefined` for any other value. Reused for the next item. */
  fields: ReadonlyMap<string, string | undefined>
}

/** Longer names are never inspected. An escaped character takes six bytes. */
const watchedNameBytesMax = 100
const textBytesMax = 200
/** Escaped, or outside of ASCII. */
const needsParser = /[\\\x80-\xff]/

/**
 * Reads the items of one list byte by byte and keeps the inspected fields of the current item alone. Throws `invalid_request` where two
 * parsers could read an item differently: for an inspected name that is repeated or has other letter case.
 */
export class ItemReader {
  readonly #bytes: Buffer
  readonly #list: string
  readonly #watched: WatchedLists
  #index = -1
  #isObject = false
  readonly #fields = new Map<string, string | undefined>()
  /** The field whose value comes next, if it is inspected. */
  #name: string | undefined
  #valueAt = 0

  constructor(bytes: Buffer, list: string, watched: WatchedLists) {
    this.#bytes = bytes
    this.#list = list
    this.#watched = watched
  }

  beginItem(isObject: boolean): void {
    this.#index++
    this.#isObject = isObject
    if (this.#fields.size > 0) this.#fields.clear()
    this.#name = undefined
  }

  endItem(): void {
    this.#watched.onItem(this.#list, this.#index, { isObject: this.#isObject, fields: this.#fields })
  }

  name(start: number, end: number): void {
    this.#name = undefined
    if (end - start > watchedNameBytesMax) return
    const written = this.#text(start, end)
    const { names } = this.#watched
    const name = names.has(written) ? written : folded(written)
    if (!names.has(name)) return
    if (written !== name) throw this.#invalid(written, `must be written ${name}.`)
    if (this.#fields.has(name)) throw this.#invalid(name, 'is repeated.')
    this.#fields.set(name, undefined)
    this.#name = name
  }

  /** A field of the item, or an element of an item that is a list. */
  beginValue(at: number): void {
    this.#valueAt = at
  }

  endValue(end: number, isText: boolean): void {
    if (this.#name === undefined || !isText || end - this.#valueAt > textBytesMax) return
    this.#fields.set(this.#name, this.#text(this.#valueAt, end))
  }

  #text(start: number, end: number): string {
    const written = this.#bytes.toString('latin1', start + 1, end - 1)
    // Fast path: a body may hold millions of plain names.
    return needsParser.test(written) ? (JSON.parse(this.#bytes.toString('utf8', start, end)) as string) : written
  }

  #invalid(name: string, what: string): ServiceError {
    return new ServiceError('invalid_request', `${this.#list}[${this.#index}].${name}: ${what}`)
  }
}

/** Folds all spellings that a parser may treat as one name. Go also folds the long s and the Kelvin sign. */
export function folded(name: string): string {
  return name.toUpperCase().toLowerCase()
}
