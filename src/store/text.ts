import { ServiceError } from '../errors.ts'

/**
 * PostgreSQL stores neither NUL nor lone surrogates. Lone surrogates always become U+FFFD, as in any UTF-8 encoder. NUL from a client is an
 * error (`strict`, `strictJson`); in output of a sandbox, which nobody can correct, it becomes U+FFFD (`lenient`, `lenientJson`).
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

/** Length of the text that is converted to JSON without yielding. */
const pieceLength = 256 * 1024

/** The text of `strictJson` for a record of texts, in pieces that are not much longer than `pieceLength`. */
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

/** Never splits a surrogate pair: each half would count as a lone surrogate. */
function endOfPiece(text: string, start: number): number {
  const end = Math.min(start + pieceLength, text.length)
  const isInside = end < text.length && /[\ud800-\udbff]/.test(text.charAt(end - 1))
  return isInside ? end + 1 : end
}

/**
 * `JSON.stringify` escapes NUL and lone surrogates in keys and values as `\u…`, and writes pairs of surrogates as they are. An escaped
 * backslash is matched too, so that a `\\u0000` in the text of a string stays unchanged.
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
