import { ServiceError } from '../errors.ts'

/**
 * PostgreSQL keeps every character but NUL, and no lone surrogates. Lone surrogates become U+FFFD everywhere, as in any
 * UTF-8 encoder. NUL depends on who wrote the text: a client is told (`strict`, `strictJson`); output of a sandbox, which
 * nobody can be asked to correct, gets U+FFFD instead (`lenient`, `lenientJson`).
 */
export function strict(text: string, field: string): string {
  if (text.includes('\0')) throw new ServiceError('invalid_request', `${field} must not contain NUL characters`)
  return text.toWellFormed()
}

export function lenient(text: string): string {
  return text.replaceAll('\0', '\ufffd').toWellFormed()
}

export function strictJson(value: object, field: string): string {
  return storable(JSON.stringify(value), field)
}

export function lenientJson(value: object): string {
  return storable(JSON.stringify(value))
}

/** Of text that is made into JSON at a time. */
const pieceLength = 256 * 1024

/** The text of `strictJson` for an object of texts, in pieces, of which none is much longer than `pieceLength`. */
export function* jsonTexts(texts: Record<string, string>, field: string): Generator<string> {
  let piece = '{'
  let separator = ''
  for (const [key, text] of Object.entries(texts)) {
    piece += `${separator}${storable(JSON.stringify(key), field)}:"`
    for (let start = 0; start < text.length;) {
      const end = endOfPiece(text, start)
      piece += storable(JSON.stringify(text.slice(start, end)).slice(1, -1), field)
      start = end
      if (piece.length < pieceLength) continue
      yield piece
      piece = ''
    }
    piece += '"'
    separator = ','
  }
  yield `${piece}}`
}

/** Never between two halves of a character, each of which would be taken for a lone one. */
function endOfPiece(text: string, start: number): number {
  const end = Math.min(start + pieceLength, text.length)
  const isInside = end < text.length && /[\ud800-\udbff]/.test(text.charAt(end - 1))
  return isInside ? end + 1 : end
}

/**
 * `JSON.stringify` writes NUL and lone surrogates, in keys and values alike, as `\u` escapes, and pairs of surrogates as
 * they are. An escaped backslash is matched too, so that a `\\u0000` in the text of a string stays what it is.
 */
const escapes = /\\(?:\\|u0000|ud[89a-f][0-9a-f]{2})/g

function storable(json: string, strictField?: string): string {
  if (!json.includes('\\u')) return json
  return json.replace(escapes, (escape) => {
    if (escape === '\\\\') return escape
    if (escape === '\\u0000' && strictField !== undefined) {
      throw new ServiceError('invalid_request', `${strictField} must not contain NUL characters`)
    }
    return '\ufffd'
  })
}
