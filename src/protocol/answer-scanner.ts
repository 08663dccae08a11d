import { backslash, closeList, closeObject, colon, comma, isBlank, openList, openObject, quote } from '../lib/json.ts'

/** The few fields of an answer that `usage-tap.ts` reads the usage from, with the same names and places. */
export interface ScannedAnswer {
  value: Record<string, unknown>
  /** Bytes of the texts that the model has written. */
  textBytes: number
}

/** Fields of an answer that the model did not write. */
export const framing = new Set(['type', 'role', 'stop_reason', 'finish_reason'])

const depthMax = 1000
/** No name that is looked for is longer. */
const keyBytesMax = 32
/** Bytes of one value that is kept. A longer one counts as absent. */
const keptBytesMax = 16 * 1024

/**
 * Reads a JSON object byte by byte as it comes, so that one of any length takes little memory and no time at its end. It is as strict as
 * finding the fields needs: model APIs are trusted with their answers.
 */
export class AnswerScanner {
  readonly #textField: string | undefined
  readonly #value: Record<string, unknown> = {}
  #textBytes = 0
  #isBroken = false
  #hasClosed = false
  #hasChoice = false
  #depth = 0
  /** Per depth: 1 for an object. */
  readonly #isObject = new Uint8Array(depthMax + 1)
  /** Names of the current fields of the outer three objects, by depth; empty in a list. */
  readonly #keys = ['', '', '', '']
  #expectsKey = false
  #inScalar = false
  #inString = false
  #isKey = false
  #key = ''
  #keyBytes = 0
  /** After a backslash: 1; within the digits of `\u`: 2 and more. */
  #escape = 0
  #unit = 0
  /** Depth of the field that is no text of the model, or 0. */
  #framingDepth = 0
  #kept: { path: string; depth: number; parts: Buffer[]; bytes: number; from: number } | undefined

  /** Texts are counted in this field of the outermost object; without one, in all of it. */
  constructor(textField?: string) {
    this.#textField = textField
  }

  push(bytes: Buffer): void {
    if (this.#isBroken) return
    if (this.#kept) this.#kept.from = 0
    for (let at = 0; at < bytes.length; at++) {
      if (this.#inString) this.#readText(bytes, at)
      else this.#readByte(bytes, at)
      if (this.#isBroken) return
    }
    if (this.#kept) this.#keep(bytes, bytes.length)
  }

  /** Undefined unless the bytes were a whole object. */
  end(): ScannedAnswer | undefined {
    if (this.#isBroken || this.#depth > 0 || this.#inString || !this.#hasClosed) return undefined
    return { value: this.#value, textBytes: this.#textBytes }
  }

  #readByte(bytes: Buffer, at: number): void {
    const byte = bytes[at]!
    const isEnd = byte === comma || byte === closeObject || byte === closeList
    if (this.#inScalar && (isEnd || isBlank(byte))) {
      this.#inScalar = false
      this.#endValue(bytes, at)
    }
    if (isBlank(byte)) return
    if (byte === quote) this.#openText(bytes, at)
    else if (byte === openObject || byte === openList) this.#open(bytes, at, byte)
    else if (byte === closeObject || byte === closeList) this.#close(bytes, at, byte)
    else if (byte === comma) this.#next()
    else if (byte === colon) this.#expectsKey = false
    else if (!this.#inScalar) {
      this.#inScalar = true
      this.#beginValue(bytes, at)
    }
  }

  #openText(bytes: Buffer, at: number): void {
    this.#inString = true
    this.#isKey = this.#expectsKey
    this.#key = ''
    this.#keyBytes = 0
    if (!this.#isKey) this.#beginValue(bytes, at)
  }

  #open(bytes: Buffer, at: number, byte: number): void {
    this.#beginValue(bytes, at)
    if (this.#depth >= depthMax) this.#isBroken = true
    if (this.#isBroken) return
    this.#depth++
    this.#isObject[this.#depth] = byte === openObject ? 1 : 0
    if (this.#depth < this.#keys.length) this.#keys[this.#depth] = ''
    this.#expectsKey = byte === openObject
  }

  #close(bytes: Buffer, at: number, byte: number): void {
    const closing = this.#isObject[this.#depth] === 1 ? closeObject : closeList
    if (this.#depth === 0 || byte !== closing) {
      this.#isBroken = true
      return
    }
    this.#depth--
    if (this.#depth < this.#framingDepth) this.#framingDepth = 0
    this.#expectsKey = false
    this.#endValue(bytes, at + 1)
    if (this.#depth === 0) this.#hasClosed = true
  }

  #next(): void {
    this.#expectsKey = this.#isObject[this.#depth] === 1
    if (this.#framingDepth === this.#depth) this.#framingDepth = 0
  }

  #beginValue(bytes: Buffer, at: number): void {
    const depth = this.#depth
    const byte = bytes[at]
    if (depth === 0) {
      if (byte !== openObject || this.#hasClosed) this.#isBroken = true
      return
    }
    if (depth > 3 || this.#kept) return
    const keys = this.#keys
    const field = keys[1]
    if (field === 'choices') this.#beginChoice(depth, byte)
    else if (depth === 1) {
      if (field === 'type' || field === 'usage') this.#beginKept(field, at)
      else if (field === 'error' && byte === openObject) this.#value['error'] = {}
    } else if (depth === 2) {
      const inner = keys[2]
      if (inner === 'usage' && (field === 'message' || field === 'response')) this.#beginKept(`${field}.usage`, at)
      else if (inner === 'stop_reason' && field === 'delta') this.#beginKept('delta.stop_reason', at)
    }
  }

  #beginKept(path: string, at: number): void {
    this.#kept = { path, depth: this.#depth, parts: [], bytes: 0, from: at }
  }

  /** Keeps only whether there is a choice and whether one has ended: further choices say no more. */
  #beginChoice(depth: number, byte: number | undefined): void {
    if (depth === 1) {
      if (byte === openList) this.#value['choices'] = []
      return
    }
    const hasEnded = depth === 3 && this.#keys[3] === 'finish_reason' && byte === quote
    if (!hasEnded && (depth === 3 || this.#hasChoice)) return
    this.#hasChoice = true
    const choices = this.#value['choices']
    if (Array.isArray(choices)) choices[0] = hasEnded ? { finish_reason: '' } : {}
  }

  /** The value ends before this offset. */
  #endValue(bytes: Buffer, end: number): void {
    const kept = this.#kept
    if (kept?.depth !== this.#depth) return
    this.#keep(bytes, end)
    this.#kept = undefined
    if (kept.bytes > keptBytesMax) return
    const [field = '', inner] = kept.path.split('.')
    try {
      const value: unknown = JSON.parse(Buffer.concat(kept.parts).toString('utf8'))
      this.#value[field] = inner === undefined ? value : { [inner]: value }
    } catch {
      this.#isBroken = true
    }
  }

  #keep(bytes: Buffer, end: number): void {
    const kept = this.#kept!
    kept.bytes += end - kept.from
    if (kept.bytes > keptBytesMax) kept.parts.length = 0
    else kept.parts.push(Buffer.from(bytes.subarray(kept.from, end)))
  }

  #readText(bytes: Buffer, at: number): void {
    const byte = bytes[at]!
    if (this.#escape > 0) this.#readEscape(byte)
    else if (byte === backslash) this.#escape = 1
    else if (byte === quote) this.#closeText(bytes, at + 1)
    else if (this.#isKey) {
      if (this.#keyBytes++ < keyBytesMax) this.#key += String.fromCharCode(byte)
    } else this.#count(1)
  }

  #readEscape(byte: number): void {
    if (this.#escape > 1) {
      this.#unit = this.#unit * 16 + Number.parseInt(String.fromCharCode(byte), 16)
      this.#escape++
      if (this.#escape < 6) return
      // Half of a character of four bytes has two.
      const isHalf = this.#unit >= 0xd800 && this.#unit < 0xe000
      this.#count(this.#unit < 0x80 ? 1 : this.#unit < 0x800 || isHalf ? 2 : 3)
    } else if (byte === 0x75) {
      this.#escape = 2
      this.#unit = 0
      return
    } else this.#count(1)
    this.#escape = 0
    // No name that is looked for has an escape.
    if (this.#isKey) this.#keyBytes = keyBytesMax + 1
  }

  #closeText(bytes: Buffer, end: number): void {
    this.#inString = false
    if (!this.#isKey) {
      this.#endValue(bytes, end)
      return
    }
    const key = this.#keyBytes > keyBytesMax ? '' : this.#key
    if (this.#depth < this.#keys.length) this.#keys[this.#depth] = key
    const isOutside = this.#textField !== undefined && this.#depth === 1
    if (this.#framingDepth === 0 && !isOutside && framing.has(key)) this.#framingDepth = this.#depth
  }

  #count(bytes: number): void {
    if (this.#isKey || this.#framingDepth > 0) return
    if (this.#textField === undefined || this.#keys[1] === this.#textField) this.#textBytes += bytes
  }
}
