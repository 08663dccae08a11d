import { setImmediate as yieldToEventLoop } from 'node:timers/promises'
import { ServiceError } from '../errors.ts'
import { readJsonObject, type JsonVisitor, type ReadLimits } from './json-object.ts'
import { backslash, quote } from './json.ts'

/** A slice makes some thousands of values at the most: some milliseconds of work. */
const limits: ReadLimits = { fieldsMax: Infinity, nameBytesMax: 64 * 1024, sliceBytes: 16 * 1024, isAnyValue: true }
/** `JSON.parse` makes the values of a shorter one at once, in some milliseconds at the most, whatever is in it. */
const shortBytes = 64 * 1024
/** A longer text is decoded in parts. */
const partBytes = 256 * 1024
/** Bytes of `\\uXXXX`. */
const escapeBytesMax = 6

type Holder = Record<string, unknown> | unknown[]

interface LongText {
  holder: Holder
  key: string | number
  /** Stands in the place of the text. */
  mark: object
  start: number
  end: number
}

export interface JsonBounds {
  /** Most values of all depths together: a value takes many times its bytes. */
  valuesMax: number
  depthMax: number
  /** Fields of one object: each costs many times what an item of a list does. */
  fieldsMax: number
}

const noBounds: JsonBounds = { valuesMax: Infinity, depthMax: Infinity, fieldsMax: Infinity }

/** The text has more than a bound allows. */
export class JsonBoundError extends Error {
  readonly bound: keyof JsonBounds

  constructor(bound: keyof JsonBounds) {
    super(`the JSON exceeds ${bound}`)
    this.bound = bound
  }
}

/**
 * The value that `JSON.parse` makes, for bodies of megabytes: it yields to the event loop between slices, where `JSON.parse` holds it for
 * hundreds of milliseconds. Throws `JsonBoundError` before it makes a value beyond the bounds, and `invalid_request` for what is no JSON.
 */
export async function parseJson(bytes: Buffer, bounds = noBounds): Promise<unknown> {
  if (bytes.length <= shortBytes) {
    await readJsonObject(bytes, new ValueCounter(bounds), limits)
    return JSON.parse(bytes.toString('utf8'))
  }
  const builder = new ValueBuilder(bytes, bounds)
  await readJsonObject(bytes, builder, limits)
  for (const { holder, key, mark, start, end } of builder.longTexts) {
    // A later field of the same name has taken its place.
    if (Object.getOwnPropertyDescriptor(holder, key)?.value !== mark) continue
    put(holder, key, await longText(bytes, start, end))
  }
  return builder.root[0]
}

class ValueCounter implements JsonVisitor {
  readonly #bounds: JsonBounds
  #valueCount = 0
  /** Number of fields of each open object, by depth. */
  readonly #fieldCounts: number[] = []
  #depth = 0

  constructor(bounds: JsonBounds) {
    this.#bounds = bounds
  }

  name(_start: number, _end: number): void {
    if (this.#fieldCounts[this.#depth]! >= this.#bounds.fieldsMax) throw new JsonBoundError('fieldsMax')
    this.#fieldCounts[this.#depth]! += 1
  }

  begin(_byte: number, _at: number): void {
    if (this.#valueCount >= this.#bounds.valuesMax) throw new JsonBoundError('valuesMax')
    this.#valueCount += 1
  }

  open(_isObject: boolean): void {
    if (this.#depth >= this.#bounds.depthMax) throw new JsonBoundError('depthMax')
    this.#depth += 1
    this.#fieldCounts[this.#depth] = 0
  }

  close(): void {
    this.#depth -= 1
  }

  end(_end: number, _isText: boolean): void {}

  comma(): void {}
}

class ValueBuilder extends ValueCounter {
  /** Holds the outermost value alone. */
  readonly root: unknown[] = []
  readonly longTexts: LongText[] = []
  readonly #bytes: Buffer
  readonly #holders: Holder[] = [this.root]
  /** Name of the next value in an object, per open holder. */
  readonly #names: string[] = []
  #valueAt = 0
  #hasClosed = false

  constructor(bytes: Buffer, bounds: JsonBounds) {
    super(bounds)
    this.#bytes = bytes
  }

  override name(start: number, end: number): void {
    super.name(start, end)
    if (end - start > limits.nameBytesMax) throw new ServiceError('invalid_request', 'The body has too long a name.')
    this.#names[this.#holders.length - 1] = this.#text(start, end)
  }

  override begin(byte: number, at: number): void {
    super.begin(byte, at)
    this.#valueAt = at
  }

  override open(isObject: boolean): void {
    super.open(isObject)
    const value: Holder = isObject ? {} : []
    this.#add(value)
    this.#holders.push(value)
  }

  override close(): void {
    super.close()
    this.#holders.pop()
    this.#hasClosed = true
  }

  override end(end: number, isText: boolean): void {
    // This is the end of a list or an object.
    if (this.#hasClosed) {
      this.#hasClosed = false
      return
    }
    const start = this.#valueAt
    if (!isText || end - start <= partBytes) {
      this.#add(isText ? this.#text(start, end) : JSON.parse(this.#bytes.toString('latin1', start, end)))
      return
    }
    const mark = {}
    const [holder, key] = this.#add(mark)
    this.longTexts.push({ holder, key, mark, start: start + 1, end: end - 1 })
  }

  /** With its quotes. */
  #text(start: number, end: number): string {
    return JSON.parse(this.#bytes.toString('utf8', start, end)) as string
  }

  #add(value: unknown): [holder: Holder, key: string | number] {
    const holder = this.#holders.at(-1)!
    const key = Array.isArray(holder) ? holder.length : this.#names[this.#holders.length - 1]!
    put(holder, key, value)
    return [holder, key]
  }
}

/** Defines an own field also for `__proto__`. */
function put(holder: Holder, key: string | number, value: unknown): void {
  if (Array.isArray(holder)) holder[key as number] = value
  else if (key !== '__proto__') holder[key] = value
  else Object.defineProperty(holder, key, { value, enumerable: true, configurable: true, writable: true })
}

/** The text between two quotes. */
async function longText(bytes: Buffer, start: number, end: number): Promise<string> {
  let text = ''
  for (let at = start; at < end;) {
    const until = at + partBytes >= end ? end : characterBefore(bytes, at, at + partBytes)
    text += JSON.parse(`"${bytes.toString('utf8', at, until)}"`) as string
    at = until
    await yieldToEventLoop()
  }
  return text
}

/** The last offset up to `at` at which no character of UTF-8 and no escape is cut in two, as none is at `from`. */
function characterBefore(bytes: Buffer, from: number, at: number): number {
  for (let slash = at - 1; slash > at - escapeBytesMax; slash -= 1) {
    if (bytes[slash] !== backslash) continue
    let first = slash
    while (first > from && bytes[first - 1] === backslash) first -= 1
    // The second of two backslashes in a row is the escaped one.
    const begins = (slash - first) % 2 === 0 ? slash : slash - 1
    const length = bytes[begins + 1] === 0x75 ? escapeBytesMax : 2
    if (begins + length > at) return begins
    // A character of several bytes may follow the escape.
    break
  }
  let until = at
  while (((bytes[until] ?? quote) & 0xc0) === 0x80) until -= 1
  return until
}
