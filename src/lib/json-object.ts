import { isUtf8 } from 'node:buffer'
import { setImmediate as yieldToEventLoop } from 'node:timers/promises'
import { ServiceError } from '../errors.ts'
import { closeList, closeObject, colon, comma, isBlank, openList, openObject, quote, backslash } from './json.ts'

/** A field of the outermost object. The bytes of its value are `start` (inclusive) to `end` (exclusive). */
export interface JsonField {
  name: string
  start: number
  end: number
}

export interface JsonObject {
  /** In order, with repeats. */
  fields: JsonField[]
  /** Offset of the closing brace of the outermost object. */
  closedAt: number
  /** At all depths. A parsed value takes many times its bytes. */
  valueCount: number
}

/** Deeper than any real request, and within the stack of recursive parsers. */
const depthMax = 1000

export interface ReadLimits {
  /** Most fields of the outermost object. */
  fieldsMax: number
  nameBytesMax: number
  /** Read per iteration of the event loop. */
  sliceBytes: number
  /** The outermost value may be of any kind. */
  isAnyValue?: boolean
}

/** Many times the fields of any API of models; a slice is less than five milliseconds of work, whatever the bytes are. */
const defaultLimits: ReadLimits = { fieldsMax: 1000, nameBytesMax: 1000, sliceBytes: 32 * 1024 }

/** Called for each name and value in the order of the bytes, at all depths. A throw ends the reading. */
export interface JsonVisitor {
  /** Name of a field, with its quotes. */
  name(start: number, end: number): void
  /** A value begins with this byte. */
  begin(byte: number, at: number): void
  /** The value is an object, or a list. */
  open(isObject: boolean): void
  close(): void
  /** The value ends before this offset. */
  end(end: number, isText: boolean): void
  comma(at: number): void
}

/**
 * The one reader of JSON that is whole in memory (`protocol/answer-scanner.ts` reads passing answers). Checks as strictly as `JSON.parse`
 * that the bytes are a JSON object, and finds its fields. It creates no other values, so a body of millions of values costs no memory, and
 * it yields between slices. `visitor` may change bytes that it has got. Throws `invalid_request`, and what the visitor throws.
 */
export async function readJsonObject(
  bytes: Buffer,
  visitor?: JsonVisitor,
  limits: Partial<ReadLimits> = {},
): Promise<JsonObject> {
  if (!isUtf8(bytes)) throw notJson()
  const reader = new ObjectReader(bytes, visitor, { ...defaultLimits, ...limits })
  while (reader.readSlice()) await yieldToEventLoop()
  return reader.end()
}

type Expected = 'value' | 'name' | 'colon' | 'next'

class ObjectReader {
  readonly #bytes: Buffer
  readonly #visitor: JsonVisitor | undefined
  readonly #limits: ReadLimits
  readonly #fields: JsonField[] = []
  /** Per open list or object: 1 for an object. */
  readonly #isObject = new Uint8Array(depthMax + 1)
  #at = 0
  #depth = 0
  #valueCount = 0
  #closedAt = -1
  /** The expected token; `next` is a comma or the closing bracket. */
  #expected: Expected = 'value'
  /** After an opening bracket, where the closing one may follow. */
  #isFirst = false
  /** Offset of the open string, or -1. */
  #stringAt = -1

  constructor(bytes: Buffer, visitor: JsonVisitor | undefined, limits: ReadLimits) {
    this.#bytes = bytes
    this.#visitor = visitor
    this.#limits = limits
  }

  /** False at the end of the bytes. */
  readSlice(): boolean {
    const until = this.#at + this.#limits.sliceBytes
    while (this.#at < until) {
      const byte = this.#bytes[this.#at]
      if (byte === undefined && this.#stringAt === -1) return false
      if (this.#stringAt !== -1) this.#readString(until)
      else if (isBlank(byte)) this.#at++
      else this.#readToken(byte)
    }
    return true
  }

  end(): JsonObject {
    if (this.#closedAt === -1) throw notJson()
    return { fields: this.#fields, closedAt: this.#closedAt, valueCount: this.#valueCount }
  }

  #readToken(byte: number | undefined): void {
    if (this.#closedAt !== -1) throw notJson()
    const closing = this.#isObject[this.#depth] ? closeObject : closeList
    if (byte === closing && (this.#isFirst || this.#expected === 'next')) return this.#close()
    if (this.#expected === 'next') return this.#pass(byte, comma, this.#isObject[this.#depth] ? 'name' : 'value')
    if (this.#expected === 'colon') return this.#pass(byte, colon, 'value')
    this.#isFirst = false
    if (this.#expected === 'value') this.#beginValue(byte)
    else if (byte !== quote) throw notJson()
    if (byte === quote) this.#stringAt = this.#at++
    else if (byte === openObject || byte === openList) this.#open(byte)
    else this.#endValue(plainEnd(this.#bytes, this.#at))
  }

  #pass(byte: number | undefined, wanted: number, expected: Expected): void {
    if (byte !== wanted) throw notJson()
    if (byte === comma) this.#visitor?.comma(this.#at)
    this.#at++
    this.#expected = expected
  }

  #readString(until: number): void {
    this.#at = stringEnd(this.#bytes, this.#at, until)
    if (this.#bytes[this.#at] !== quote) return
    const start = this.#stringAt
    const end = this.#at + 1
    this.#stringAt = -1
    if (this.#expected === 'value') return this.#endValue(end, true)
    if (this.#depth === 1) this.#addField(start, end)
    this.#visitor?.name(start, end)
    this.#at = end
    this.#expected = 'colon'
  }

  #addField(start: number, end: number): void {
    const { fieldsMax, nameBytesMax } = this.#limits
    if (this.#fields.length >= fieldsMax || end - start > nameBytesMax) {
      throw new ServiceError('invalid_request', 'The body has too many fields, or one with too long a name.')
    }
    this.#fields.push({ name: JSON.parse(this.#bytes.toString('utf8', start, end)) as string, start: end, end })
  }

  #beginValue(byte: number | undefined): void {
    if (this.#depth === 0 && byte !== openObject && !this.#limits.isAnyValue)
      throw new ServiceError('invalid_request', 'The body is not an object.')
    this.#valueCount++
    if (this.#isField) this.#fields.at(-1)!.start = this.#at
    if (byte !== undefined) this.#visitor?.begin(byte, this.#at)
  }

  #endValue(end: number, isText = false): void {
    if (this.#isField) this.#fields.at(-1)!.end = end
    if (this.#depth === 0) this.#closedAt = end - 1
    this.#visitor?.end(end, isText)
    this.#at = end
    this.#expected = 'next'
  }

  /** Whether the current value is of a field of the outermost object. */
  get #isField(): boolean {
    return this.#depth === 1 && this.#isObject[1] === 1
  }

  #open(byte: number): void {
    if (this.#depth >= depthMax) throw new ServiceError('invalid_request', 'The body is nested too deep.')
    this.#visitor?.open(byte === openObject)
    this.#depth++
    this.#isObject[this.#depth] = byte === openObject ? 1 : 0
    this.#at++
    this.#expected = byte === openObject ? 'name' : 'value'
    this.#isFirst = true
  }

  #close(): void {
    this.#isFirst = false
    this.#visitor?.close()
    this.#depth--
    this.#endValue(this.#at + 1)
  }
}

const plus = 0x2b
const minus = 0x2d
const dot = 0x2e
const zero = 0x30
const nine = 0x39

/** Characters of two-character escapes. */
const escapes = new Set(Buffer.from('"\\/bfnrt'))
const words = ['true', 'false', 'null'].map((word) => Buffer.from(word))

/** The offset of the closing quote, or of the first character that begins at or after `until`. */
function stringEnd(bytes: Buffer, from: number, until: number): number {
  let at = from
  while (at < until && bytes[at] !== quote) {
    const byte = bytes[at]
    if (byte === undefined || byte < 0x20) throw notJson()
    at += byte === backslash ? escapeLength(bytes, at) : 1
  }
  return at
}

/** The offset after a number or a word. */
function plainEnd(bytes: Buffer, from: number): number {
  return bytes[from] === minus || isDigit(bytes[from]) ? numberEnd(bytes, from) : wordEnd(bytes, from)
}

function notJson(): ServiceError {
  return new ServiceError('invalid_request', 'The body is not JSON.')
}

function escapeLength(bytes: Buffer, at: number): number {
  const letter = bytes[at + 1] ?? 0
  if (escapes.has(letter)) return 2
  if (letter !== 0x75) throw notJson()
  for (let digit = at + 2; digit < at + 6; digit++) if (!isHexDigit(bytes[digit])) throw notJson()
  return 6
}

function numberEnd(bytes: Buffer, from: number): number {
  let at = bytes[from] === minus ? from + 1 : from
  at = bytes[at] === zero ? at + 1 : digitsEnd(bytes, at)
  if (bytes[at] === dot) at = digitsEnd(bytes, at + 1)
  if (lowerCase(bytes[at]) === 0x65) {
    const sign = bytes[at + 1]
    at = digitsEnd(bytes, sign === minus || sign === plus ? at + 2 : at + 1)
  }
  return at
}

/** More than any client's number has. A number is read without a yield. */
const digitsMax = 10_000

/** The offset after one or more digits. */
function digitsEnd(bytes: Buffer, from: number): number {
  let at = from
  while (isDigit(bytes[at]) && at - from <= digitsMax) at++
  if (at === from || at - from > digitsMax) throw notJson()
  return at
}

function wordEnd(bytes: Buffer, from: number): number {
  for (const word of words) {
    let length = 0
    while (length < word.length && bytes[from + length] === word[length]) length++
    if (length === word.length) return from + length
  }
  throw notJson()
}

function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= zero && byte <= nine
}

function isHexDigit(byte: number | undefined): boolean {
  const letter = lowerCase(byte)
  return isDigit(byte) || (letter >= 0x61 && letter <= 0x66)
}

function lowerCase(byte: number | undefined): number {
  return byte === undefined ? 0 : byte | 0x20
}
