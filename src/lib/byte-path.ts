/**
 * Paths in sandboxes are bytes. One that is UTF-8 is a string of its text. In any other, each byte that is no ASCII is the lone surrogate
 * U+DC00 + byte, so that a string holds every path and no two are the same.
 */

const escape = 0xdc00
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

export function pathOfBytes(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes)
  } catch {
    const text = Buffer.from(bytes).toString('latin1')
    return text.replaceAll(/[\x80-\xff]/g, (letter) => String.fromCharCode(escape + letter.charCodeAt(0)))
  }
}

/** The bytes of a path; undefined for text with lone surrogates of another kind, which is no path. */
export function bytesOfPath(path: string): Buffer | undefined {
  if (path.isWellFormed()) return Buffer.from(path)
  if (!/^[\0-\x7f\udc80-\udcff]*$/.test(path)) return undefined
  return Buffer.from(
    path.replaceAll(/[\udc80-\udcff]/g, (unit) => String.fromCharCode(unit.charCodeAt(0) - escape)),
    'latin1',
  )
}

/** The bytes of a path in latin1, as trees and archives have it. */
export function latin1OfPath(path: string): string {
  return (bytesOfPath(path) ?? Buffer.from(path)).toString('latin1')
}

/** Base64 with the alphabet of URLs or the common one; undefined for anything else. */
export function pathOfBase64(text: string): string | undefined {
  if (!/^[A-Za-z0-9+/_-]*={0,2}$/.test(text)) return undefined
  return pathOfBytes(Buffer.from(text, 'base64'))
}
