import type { DirectoryEntry } from 'atoll-sdk'

/** Where something is in a sandbox: an absolute path, and its bytes where these are no UTF-8. */
export type Place = Pick<DirectoryEntry, 'path' | 'pathBase64'>

/** Says the same of the same place, and of each place something else. */
export function keyOf({ path, pathBase64 }: Place): string {
  return pathBase64 ?? path
}

/** A place as the API tells it, if it does. */
export function placeTold(path: string | undefined, pathBase64: string | undefined): Place | undefined {
  if (path === undefined) return undefined
  return pathBase64 === undefined ? { path } : { path, pathBase64 }
}

export function isSamePlace(one: Place | undefined, other: Place | undefined): boolean {
  return one !== undefined && other !== undefined && keyOf(one) === keyOf(other)
}

/** The last part of a path; `/` of the root. */
export function nameOfPlace({ path }: Place): string {
  return path.slice(path.lastIndexOf('/') + 1) || '/'
}

export function childPlace(parent: Place, name: string): Place {
  const path = `${parent.path === '/' ? '' : parent.path}/${name}`
  if (parent.pathBase64 === undefined) return { path }
  const [above, below] = [bytesOfPlace(parent), new TextEncoder().encode(`/${name}`)]
  const bytes = new Uint8Array(above.length + below.length)
  bytes.set(above)
  bytes.set(below, above.length)
  return placeOf(bytes, path)
}

/** Undefined above the root. */
export function parentPlace(place: Place): Place | undefined {
  if (place.path === '/') return undefined
  const path = place.path.slice(0, place.path.lastIndexOf('/')) || '/'
  if (place.pathBase64 === undefined) return { path }
  const bytes = bytesOfPlace(place)
  return placeOf(bytes.subarray(0, Math.max(1, bytes.lastIndexOf(slash))), path)
}

/** Whether it is a folder or something below it. */
export function isWithin(place: Place, folder: Place): boolean {
  for (let above: Place | undefined = place; above !== undefined; above = parentPlace(above)) {
    if (isSamePlace(above, folder)) return true
  }
  return false
}

/** A place as a parameter of the page's address; a folder ends with `/`. */
export function addressOf(place: Place, isFolder: boolean): string {
  const end = isFolder && place.path !== '/' ? '/' : ''
  return place.pathBase64 === undefined ? place.path + end : bytesPrefix + place.pathBase64 + end
}

/** Reads such a parameter, which anybody may have written. Undefined for what is none. */
export function placeOfAddress(address: string): { place: Place; isFolder: boolean } | undefined {
  const isFolder = address.endsWith('/')
  const text = isFolder && address !== '/' ? address.slice(0, -1) : address
  if (text.startsWith(bytesPrefix)) {
    const bytes = decoded(text.slice(bytesPrefix.length))
    return bytes?.[0] === slash ? { place: placeOf(bytes, shownBytes(bytes)), isFolder } : undefined
  }
  const path = plainPath(text)
  return path === undefined ? undefined : { place: { path }, isFolder: isFolder || path === '/' }
}

/** An absolute path without `.`, `..` and doubled slashes; undefined for one that is not absolute. */
export function plainPath(text: string): string | undefined {
  if (!text.startsWith('/') || text.includes('\0')) return undefined
  const parts: string[] = []
  for (const part of text.split('/')) {
    if (part === '..') parts.pop()
    else if (part !== '' && part !== '.') parts.push(part)
  }
  return `/${parts.join('/')}`
}

/** Why a text is no name of a file; undefined for one that is. */
export function nameFault(name: string): string | undefined {
  if (name === '') return undefined
  if (name === '.' || name === '..') return 'This name has a meaning of its own.'
  if (name.includes('/')) return 'A name has no slash.'
  if (name.includes('\0')) return 'A name has no NUL.'
  return new TextEncoder().encode(name).length > nameBytesMax ? `A name has at most ${nameBytesMax} bytes.` : undefined
}

const slash = 0x2f
const nameBytesMax = 255
const bytesPrefix = 'base64:'

export function bytesOfPlace({ path, pathBase64 }: Place): Uint8Array {
  return (pathBase64 === undefined ? undefined : decoded(pathBase64)) ?? new TextEncoder().encode(path)
}

function decoded(base64: string): Uint8Array | undefined {
  try {
    return Uint8Array.from(atob(base64), (char) => char.charCodeAt(0))
  } catch {
    return undefined
  }
}

/** `shown`: how bytes that are no UTF-8 are told. */
function placeOf(bytes: Uint8Array, shown: string): Place {
  try {
    return { path: new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes) }
  } catch {
    return { path: shown, pathBase64: btoa(String.fromCharCode(...bytes)) }
  }
}

function shownBytes(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes)
}
