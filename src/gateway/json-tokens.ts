import { ServiceError } from '../errors.ts'
import { backslash, quote } from '../lib/json-bytes.ts'

const plus = 0x2b
const minus = 0x2d
const dot = 0x2e
const zero = 0x30
const nine = 0x39

/** What may follow a backslash alone. */
const escapes = new Set(Buffer.from('"\\/bfnrt'))
const words = ['true', 'false', 'null'].map((word) => Buffer.from(word))

/** Where a string is closed, or its first character that does not begin before `until`. */
export function stringEnd(bytes: Buffer, from: number, until: number): number {
  let at = from
  while (at < until && bytes[at] !== quote) {
    const byte = bytes[at]
    if (byte === undefined || byte < 0x20) throw notJson()
    at += byte === backslash ? escapeLength(bytes, at) : 1
  }
  return at
}

/** Behind a number or a word. */
export function plainEnd(bytes: Buffer, from: number): number {
  return bytes[from] === minus || isDigit(bytes[from]) ? numberEnd(bytes, from) : wordEnd(bytes, from)
}

export function notJson(): ServiceError {
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

/** Behind one digit or more. */
function digitsEnd(bytes: Buffer, from: number): number {
  let at = from
  while (isDigit(bytes[at])) at++
  if (at === from) throw notJson()
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
