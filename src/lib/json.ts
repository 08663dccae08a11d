import { setImmediate as nextRound } from 'node:timers/promises'

/** Whether a value from outside is an object with fields: no array, and not null. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Bytes of JSON's grammar (RFC 8259). */
export const quote = 0x22
export const backslash = 0x5c
export const comma = 0x2c
export const colon = 0x3a
export const openList = 0x5b
export const closeList = 0x5d
export const openObject = 0x7b
export const closeObject = 0x7d

export function isBlank(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09
}

export interface JsonBounds {
  /** Of all depths together. */
  valuesMax: number
  depthMax: number
  /** Fields of one object: each costs many times what an item of a list does. Absent: no bound of its own. */
  fieldsMax?: number
}

/** Read per iteration of the event loop: about a millisecond of work. */
const sliceBytes = 256 * 1024

/**
 * Returns the bound that a JSON text exceeds, before a parser creates its values, which take many times the bytes. The count is exact for
 * valid JSON; whether the text is valid is left to the parser.
 */
export async function exceededBound(json: Buffer, bounds: JsonBounds): Promise<keyof JsonBounds | undefined> {
  const counter = new ValueCounter(json, bounds)
  while (counter.at < json.length) {
    const exceeded = counter.readSlice()
    if (exceeded !== undefined) return exceeded
    if (counter.at < json.length) await nextRound()
  }
  return undefined
}

class ValueCounter {
  at = 0
  readonly #json: Buffer
  readonly #bounds: JsonBounds
  /** The outermost value. */
  #values = 1
  #depth = 0
  #isInString = false
  /** After an opening bracket: the list or object may be empty. */
  #isFirst = false
  /** Of the open objects, by depth; a list counts as -Infinity. */
  readonly #fields: number[] = [0]

  constructor(json: Buffer, bounds: JsonBounds) {
    this.#json = json
    this.#bounds = bounds
  }

  readSlice(): keyof JsonBounds | undefined {
    const { valuesMax, depthMax, fieldsMax = Infinity } = this.#bounds
    const end = Math.min(this.at + sliceBytes, this.#json.length)
    while (this.at < end) {
      if (this.#isInString) this.#skipString(end)
      else this.#readByte(this.#json[this.at++]!)
      if (this.#values > valuesMax) return 'valuesMax'
      if (this.#depth > depthMax) return 'depthMax'
      // One more than the commas.
      if (this.#fields[this.#depth]! >= fieldsMax) return 'fieldsMax'
    }
    return undefined
  }

  #skipString(end: number): void {
    let at = this.at
    while (at < end) {
      const byte = this.#json[at]
      if (byte === quote) {
        this.#isInString = false
        at++
        break
      }
      // The escaped character may lie beyond the slice.
      at += byte === backslash ? 2 : 1
    }
    this.at = at
  }

  #readByte(byte: number): void {
    if (isBlank(byte)) return
    const isClosing = byte === closeList || byte === closeObject
    if (byte === comma || (this.#isFirst && !isClosing)) this.#values++
    if (byte === comma) this.#fields[this.#depth]! += 1
    const isOpening = byte === openList || byte === openObject
    this.#isFirst = isOpening
    if (isOpening) this.#fields[++this.#depth] = byte === openObject ? 0 : -Infinity
    else if (isClosing) this.#depth--
    else if (byte === quote) this.#isInString = true
  }
}
