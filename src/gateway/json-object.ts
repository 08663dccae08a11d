import { isUtf8 } from 'node:buffer'
import { setImmediate as othersTurn } from 'node:timers/promises'
import { ServiceError } from '../errors.ts'
import {
  closeList,
  closeObject,
  colon,
  comma,
  isBlank,
  notJson,
  openList,
  openObject,
  plainEnd,
  quote,
  stringEnd,
} from './json-tokens.ts'

/** A field of the outermost object: the bytes of its value are those from `start` to before `end`. */
export interface JsonField {
  name: string
  start: number
  end: number
}

export interface JsonObject {
  /** In their order, and with repeats. */
  fields: JsonField[]
  /** Where the outermost object is closed. */
  closedAt: number
  /** Of all depths: what a parser makes of a value weighs many times its bytes. */
  valueCount: number
}

/** Deeper than any request, and no deeper than parsers go that call themselves for each level. */
const depthMax = 1000
/** Many times what any API has. */
const fieldsMax = 1000
const nameBytesMax = 1000
/** How much is read before others have their turn: some milliseconds' work. */
const sliceBytes = 256 * 1024

/**
 * Checks as strictly as `JSON.parse` does that these bytes are a JSON object, and finds its fields. No values are made, so that
 * a body of millions of them costs no memory; and others have their turns, so that it does not hold them up. Throws
 * `invalid_request`.
 */
export async function readJsonObject(bytes: Buffer): Promise<JsonObject> {
  if (!isUtf8(bytes)) throw notJson()
  const fields: JsonField[] = []
  /** Of each list or object that is open, 1 for an object. */
  const isObject = new Uint8Array(depthMax + 1)
  let depth = 0
  let valueCount = 0
  let closedAt = -1
  let expected: 'value' | 'name' | 'colon' | 'next' = 'value'
  /** Behind an opening bracket, where the closing one may stand instead of what is expected. */
  let isFirst = false
  let pauseAt = sliceBytes
  let at = 0
  for (;;) {
    if (at >= pauseAt) {
      await othersTurn()
      pauseAt = at + sliceBytes
    }
    const byte = bytes[at]
    if (byte === undefined) break
    if (isBlank(byte)) {
      at++
      continue
    }
    if (closedAt !== -1) throw notJson()
    if (expected === 'colon') {
      if (byte !== colon) throw notJson()
      at++
      expected = 'value'
      continue
    }
    if (expected === 'next' && byte === comma) {
      at++
      expected = isObject[depth] ? 'name' : 'value'
      continue
    }
    if ((expected === 'next' || isFirst) && byte === (isObject[depth] ? closeObject : closeList)) {
      if (--depth === 0) closedAt = at
      at++
      if (depth === 1) fields.at(-1)!.end = at
      expected = 'next'
      isFirst = false
      continue
    }
    if (expected === 'next') throw notJson()
    isFirst = false
    const start = at
    if (byte === quote) {
      at++
      // In pieces: a string may be as long as the body.
      while (bytes[(at = stringEnd(bytes, at, at + sliceBytes))] !== quote) await othersTurn()
      at++
    }
    if (expected === 'name') {
      if (byte !== quote) throw notJson()
      if (depth === 1) {
        if (fields.length >= fieldsMax || at - start > nameBytesMax) {
          throw new ServiceError('invalid_request', 'The body has too many fields, or one with too long a name.')
        }
        fields.push({ name: JSON.parse(bytes.toString('utf8', start, at)) as string, start: at, end: at })
      }
      expected = 'colon'
      continue
    }
    if (depth === 0 && byte !== openObject) throw new ServiceError('invalid_request', 'The body is not an object.')
    valueCount++
    if (depth === 1) fields.at(-1)!.start = start
    if (byte === openObject || byte === openList) {
      if (depth >= depthMax) throw new ServiceError('invalid_request', 'The body is nested too deep.')
      isObject[++depth] = byte === openObject ? 1 : 0
      at++
      expected = byte === openObject ? 'name' : 'value'
      isFirst = true
      continue
    }
    if (byte !== quote) at = plainEnd(bytes, at)
    if (depth === 1) fields.at(-1)!.end = at
    expected = 'next'
  }
  if (closedAt === -1) throw notJson()
  return { fields, closedAt, valueCount }
}
