import { ServiceError } from '../errors.ts'
import { openList, openObject } from '../lib/json.ts'
import { RefusedField } from './refused-field.ts'
import type { ObjectShape, Shape, VariantNames } from './shapes/shape.ts'

const space = 0x20
const letterN = 0x6e
/** Longer names are in no shape. An escaped character takes six bytes. */
const nameBytesMax = 300
const typeBytesMax = 300
/** Characters of a name in an error message. */
const toldNameMax = 100
/** Longer values are not empty. */
const emptyBytesMax = 16
/** Unescaped: clients escape the slashes at most. */
const addressPrefix = /^(data|https?):/i
const addressPrefixBytes = 6
/** Escaped, or outside of ASCII. */
const needsParser = /[\\\x80-\xff]/

/** A list or an object that is open. Reused for the next one at its depth. */
class Frame {
  /** Absent in a list. */
  object: ObjectShape | undefined
  /** Shape of the items of a list, or of the field whose value comes next. */
  shape: Shape = {}
  /** Position of the current item in a list. */
  index = -1
  name = ''
  nameAt = 0
  readonly names = new Set<string>()
  type: string | undefined
  /** Offset of the comma before the current field, or -1 when none is left there. */
  commaAt = -1
  /** The first field of the object is cut, and the comma after it is to follow. */
  cutsComma = false

  begin(shape: Shape, isObject: boolean): void {
    this.object = isObject ? shape.object : undefined
    this.shape = isObject ? {} : (shape.list ?? {})
    this.index = -1
    this.type = undefined
    this.commaAt = -1
    this.cutsComma = false
    if (this.names.size > 0) this.names.clear()
  }
}

/**
 * Compares a body with its shape while `json-object.ts` reads it, and overwrites with blanks what must not be sent. It keeps only the names
 * of open objects, whose number the shape bounds. Throws `RefusedField` for what the shape does not have, and `invalid_request` where two
 * parsers could read another value: for a name that is repeated or has other letter case.
 */
export class ShapeReader {
  readonly #bytes: Buffer
  readonly #wire: string
  readonly #root: Shape
  readonly #frames: Frame[] = []
  #depth = 0
  /** Open lists and objects inside a value that is not inspected. */
  #skipped = 0
  /** Shape of the current value. */
  #shape: Shape = {}
  #valueAt = 0

  /** The bytes are changed where something is cut. */
  constructor(bytes: Buffer, wire: string, root: Shape) {
    this.#bytes = bytes
    this.#wire = wire
    this.#root = root
  }

  name(start: number, end: number): void {
    if (this.#skipped > 0) return
    const frame = this.#top()
    const name = end - start > nameBytesMax ? undefined : this.#text(start, end)
    const { fields, rest } = frame.object!
    const shape = name === undefined ? undefined : (fields.get(name) ?? rest)
    frame.name = name ?? this.#bytes.toString('utf8', start + 1, start + 1 + toldNameMax)
    if (!shape) throw this.#unknownName(frame, fields)
    // Names of the client's choice are not kept: their number has no bound, and nothing depends on them.
    if (fields.has(frame.name)) {
      if (frame.names.has(frame.name)) throw this.#ambiguous('is repeated.')
      frame.names.add(frame.name)
    }
    frame.nameAt = start
    frame.shape = shape
  }

  comma(at: number): void {
    if (this.#skipped > 0) return
    const frame = this.#top()
    if (frame.cutsComma) this.#bytes[at] = space
    else frame.commaAt = at
    frame.cutsComma = false
  }

  /** A value begins with this byte. */
  begin(byte: number, at: number): void {
    if (this.#skipped > 0) return
    const frame = this.#depth === 0 ? undefined : this.#top()
    if (frame && !frame.object) frame.index++
    const shape = frame?.shape ?? this.#root
    this.#shape = shape
    this.#valueAt = at
    if (shape.isFree || shape.isCut) return
    if (shape.onlyEmpty !== undefined) {
      if (byte === openObject) throw this.#refused(`is not served: ${shape.onlyEmpty}`)
    } else if (byte === openObject) {
      if (!shape.object) throw this.#refused(kindFault(shape))
    } else if (byte === openList) {
      if (!shape.list) throw this.#refused(kindFault(shape))
    } else if (!shape.plain && !(byte === letterN && frame?.object)) {
      throw this.#refused(kindFault(shape))
    }
  }

  /** The value is a list or an object. */
  open(isObject: boolean): void {
    const shape = this.#shape
    if (this.#skipped > 0 || shape.isFree || shape.isCut || shape.onlyEmpty !== undefined) {
      this.#skipped++
      return
    }
    const frame = (this.#frames[this.#depth] ??= new Frame())
    this.#depth++
    frame.begin(shape, isObject)
  }

  close(): void {
    if (this.#skipped > 0) {
      this.#skipped--
      return
    }
    const frame = this.#top()
    if (frame.object) this.#checkVariant(frame, frame.object)
    this.#depth--
  }

  /** The value ends before this offset. */
  end(end: number, isText: boolean): void {
    if (this.#skipped > 0 || this.#depth === 0) return
    const frame = this.#top()
    if (!frame.object) return
    const { shape, name } = frame
    // The beginning of a list or an object is not kept.
    if (shape.isCut) return this.#cut(frame, end)
    if (shape.onlyEmpty !== undefined) {
      if (!this.#isEmpty(frame, end)) throw this.#refused(`is not served: ${shape.onlyEmpty}`)
    } else if (shape.isForcedFalse) {
      if (this.#bytes.toString('latin1', this.#valueAt, Math.min(end, this.#valueAt + emptyBytesMax)) !== 'false')
        this.#cut(frame, end)
    } else if (shape.isAddress && isText) {
      const first = this.#bytes.toString('latin1', this.#valueAt + 1, this.#valueAt + 1 + addressPrefixBytes)
      if (!addressPrefix.test(first)) throw this.#refused('must be data or an address with http: or https:')
    } else if (isText && name === 'type' && frame.object.variants && end - this.#valueAt <= typeBytesMax) {
      frame.type = this.#text(this.#valueAt, end)
    }
  }

  #top(): Frame {
    return this.#frames[this.#depth - 1]!
  }

  #text(start: number, end: number): string {
    const written = this.#bytes.toString('latin1', start + 1, end - 1)
    // Fast path: a body may hold millions of plain names.
    return needsParser.test(written) ? (JSON.parse(this.#bytes.toString('utf8', start, end)) as string) : written
  }

  #isEmpty(frame: Frame, end: number): boolean {
    if (end - frame.nameAt > nameBytesMax + emptyBytesMax) return false
    const field: unknown = JSON.parse(`{${this.#bytes.toString('utf8', frame.nameAt, end)}}`)
    const [value] = Object.values(field as Record<string, unknown>)
    return value === null || value === false || value === '' || (Array.isArray(value) && value.length === 0)
  }

  /** The field whose value has ended, with one of the commas beside it. */
  #cut(frame: Frame, end: number): void {
    this.#bytes.fill(space, frame.commaAt === -1 ? frame.nameAt : frame.commaAt, end)
    frame.cutsComma = frame.commaAt === -1
  }

  #checkVariant(frame: Frame, { variants }: ObjectShape): void {
    if (!variants) return
    const { type, names } = frame
    let served: VariantNames | undefined
    if (names.has('type')) {
      served = type === undefined ? undefined : variants.types.get(type)
      if (!served && type !== undefined) served = variants.patterns.find(([pattern]) => pattern.test(type))?.[1]
    } else if (variants.untypedNeeds === undefined || names.has(variants.untypedNeeds)) {
      served = variants.untyped
    }
    if (!served) {
      frame.name = 'type'
      throw this.#refused(variants.fault, type)
    }
    if (served === 'all') return
    for (const name of names) {
      if (served.has(name)) continue
      frame.name = name
      throw this.#refused(`is not served in type ${type ?? 'none'}`)
    }
  }

  #unknownName(frame: Frame, fields: ReadonlyMap<string, Shape>): ServiceError {
    const likeIt = folded(frame.name)
    return fields.has(likeIt) ? this.#ambiguous(`must be written ${likeIt}.`) : this.#refused('is not served')
  }

  #refused(what: string, type?: string): RefusedField {
    const place = this.#path((frame) => (frame.object ? `.${told(frame.name)}` : '[]'))
    const field = `${this.#wire}:${place}${type === undefined ? '' : `=${told(type)}`}`
    const message = `${this.#where()}: ${what}. The operator can allow it, as ${field} in ATOLL_GATEWAY_ALLOW.`
    return new RefusedField(field, message)
  }

  #ambiguous(what: string): ServiceError {
    return new ServiceError('invalid_request', `${this.#where()}: ${what}`)
  }

  #where(): string {
    return this.#path((frame) => (frame.object ? `.${told(frame.name)}` : `[${frame.index}]`))
  }

  #path(step: (frame: Frame) => string): string {
    const path = this.#frames.slice(0, this.#depth).map(step).join('')
    return path.startsWith('.') ? path.slice(1) : path
  }
}

function kindFault(shape: Shape): string {
  const kinds = [
    ...(shape.plain ? ['a text, a number or a boolean'] : []),
    ...(shape.list ? ['a list'] : []),
    ...(shape.object ? ['an object'] : []),
  ]
  return `must be ${kinds.join(' or ')}`
}

/** A client's name for a thing, shortened for a message. */
function told(name: string): string {
  const text = name.length > toldNameMax ? `${name.slice(0, toldNameMax)}…` : name
  return text.replaceAll(/[\s\p{C}]/gu, '\ufffd')
}

/** Folds all spellings that a parser may treat as one name. Go also folds the long s and the Kelvin sign. */
export function folded(name: string): string {
  return name.toUpperCase().toLowerCase()
}
