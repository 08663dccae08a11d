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
