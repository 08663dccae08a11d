import { ServiceError } from '../errors.ts'

/** Lists among the outermost fields, and which names of the objects in them are looked at. */
export interface WatchedLists {
  lists: ReadonlySet<string>
  /** In lower case. */
  names: ReadonlySet<string>
  /** Called behind each item, in their order. What it throws ends the reading. */
  onItem: (list: string, index: number, item: JsonItem) => void
}

export interface JsonItem {
  isObject: boolean
  /** By name, of those that are watched: the text of a short string, `undefined` for any other value. Emptied for the next item. */
  fields: ReadonlyMap<string, string | undefined>
}

/** Longer names are none that is watched: of six bytes for each character, when it is written as an escape. */
const watchedNameBytesMax = 100
const textBytesMax = 200
/** With an escape, or outside of ASCII. */
const needsParser = /[\\\x80-\xff]/

/**
 * Follows the items of one list while the bytes are read, and keeps what is watched of the item at hand alone. Throws
 * `invalid_request` where two parsers may read an item differently: for a watched name that stands there twice, or in other
 * letters.
 */
export class ItemReader {
  readonly #bytes: Buffer
  readonly #list: string
  readonly #watched: WatchedLists
  #index = -1
  #isObject = false
  readonly #fields = new Map<string, string | undefined>()
  /** Of the item's fields, the one whose value comes next, if it is watched. */
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
    if (this.#fields.has(name)) throw this.#invalid(name, 'stands there twice.')
    this.#fields.set(name, undefined)
    this.#name = name
  }

  /** Of a field of the item, or of an item of an item that is a list. */
  beginValue(at: number): void {
    this.#valueAt = at
  }

  endValue(end: number, isText: boolean): void {
    if (this.#name === undefined || !isText || end - this.#valueAt > textBytesMax) return
    this.#fields.set(this.#name, this.#text(this.#valueAt, end))
  }

  #text(start: number, end: number): string {
    const written = this.#bytes.toString('latin1', start + 1, end - 1)
    // A body may hold millions of them, which mean what they say.
    return needsParser.test(written) ? (JSON.parse(this.#bytes.toString('utf8', start, end)) as string) : written
  }

  #invalid(name: string, what: string): ServiceError {
    return new ServiceError('invalid_request', `${this.#list}[${this.#index}].${name}: ${what}`)
  }
}

/** One spelling for all that a parser may hold to be the same name: in Go also the long s and the sign for Kelvin. */
export function folded(name: string): string {
  return name.toUpperCase().toLowerCase()
}
