/** A part of a file, both ends inclusive. */
export interface ByteRange {
  start: number
  end: number
}

/** Room for two numbers and some blanks; what is longer is malformed. */
const headerLengthMax = 100
const numberPattern = /^\d{0,15}$/

/**
 * Reads a `Range` header (RFC 9110 § 14.2) against the size of a file. `undefined`: send it whole, which is right for no
 * header, for another unit, for several ranges and for what is malformed. `unsatisfiable`: answer 416.
 */
export function parseRange(header: string | undefined, size: number): ByteRange | 'unsatisfiable' | undefined {
  if (header === undefined || header.length > headerLengthMax) return undefined
  // Blanks are trimmed and not matched: where two of a pattern's parts take the same blanks, it tries all ways to share them.
  const [, first = '', last = ''] = /^bytes=([^-]*)-([^-]*)$/i.exec(header)?.map((part) => part.trim()) ?? []
  if (first === '' && last === '') return undefined
  if (!numberPattern.test(first) || !numberPattern.test(last)) return undefined
  if (first === '') {
    const length = Math.min(Number(last), size)
    return length === 0 ? 'unsatisfiable' : { start: size - length, end: size - 1 }
  }
  const start = Number(first)
  if (last !== '' && Number(last) < start) return undefined
  if (start >= size) return 'unsatisfiable'
  return { start, end: last === '' ? size - 1 : Math.min(Number(last), size - 1) }
}
