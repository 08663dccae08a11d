import type { FileInfo, Files } from 'atoll-sdk'
import type { Place } from './place.ts'

/** A text that can be changed. `lineEnds`: a text field knows `\n` alone. */
export interface TextContent {
  type: 'text'
  text: string
  bytes: Uint8Array<ArrayBuffer>
  lineEnds: 'lf' | 'crlf' | 'mixed'
}

export type FileContent =
  | TextContent
  | { type: 'image'; blob: Blob }
  /** Not read, or no text: `isLarge` where it is too long to be shown. */
  | { type: 'binary'; isLarge: boolean }

export interface ReadFile {
  /** As it was just before the content was read. */
  info: FileInfo
  /** Bytes that a reader gets. */
  size: number
  content: FileContent
}

export const textBytesMax = 1024 * 1024
const imageBytesMax = 16 * 1024 * 1024

/** Reads a file as far as it can be shown. Throws `NotFoundError`, `InvalidRequestError` for what has no content. */
export async function readFile(files: Files, place: Place, signal: AbortSignal): Promise<ReadFile> {
  const info = await files.stat(place, { signal })
  const size = (await files.size(place, { signal })) ?? 0
  if (size > imageBytesMax) return { info, size, content: { type: 'binary', isLarge: true } }
  const bytesMax = isImageName(place.path) ? imageBytesMax : textBytesMax
  const bytes = await readBounded(files, place, { bytesMax, signal })
  return { info, size, content: bytes === undefined ? { type: 'binary', isLarge: true } : contentOf(bytes) }
}

/** Undefined for a file with more bytes, whatever its size was said to be. */
export async function readBounded(
  files: Files,
  place: Place,
  { bytesMax, signal }: { bytesMax: number; signal?: AbortSignal },
): Promise<Uint8Array<ArrayBuffer> | undefined> {
  const reader = (await files.readStream(place, { signal })).getReader()
  const parts: Uint8Array[] = []
  let length = 0
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) break
      length += value.length
      if (length > bytesMax) return undefined
      parts.push(value)
    }
  } finally {
    await reader.cancel().catch(() => undefined)
  }
  const bytes = new Uint8Array(length)
  let offset = 0
  for (const part of parts) {
    bytes.set(part, offset)
    offset += part.length
  }
  return bytes
}

function contentOf(bytes: Uint8Array<ArrayBuffer>): FileContent {
  const type = imageTypeOf(bytes)
  if (type !== undefined) return { type: 'image', blob: new Blob([bytes], { type }) }
  const text = bytes.includes(0) ? undefined : decoded(bytes)
  if (text === undefined) return { type: 'binary', isLarge: false }
  if (bytes.length > textBytesMax) return { type: 'binary', isLarge: true }
  return { type: 'text', text: text.replaceAll(/\r\n?/g, '\n'), bytes, lineEnds: lineEndsOf(text) }
}

function decoded(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    return undefined
  }
}

function lineEndsOf(text: string): TextContent['lineEnds'] {
  const returns = text.split('\r').length - 1
  if (returns === 0) return 'lf'
  const pairs = text.split('\r\n').length - 1
  return pairs === returns && pairs === text.split('\n').length - 1 ? 'crlf' : 'mixed'
}

/** By its first bytes, since a name says nothing about a content. Only types that browsers draw and that run nothing. */
function imageTypeOf(bytes: Uint8Array): string | undefined {
  const start = String.fromCharCode(...bytes.subarray(0, 16))
  if (start.startsWith('\x89PNG\r\n\x1a\n')) return 'image/png'
  if (start.startsWith('\xff\xd8\xff')) return 'image/jpeg'
  if (/^GIF8[79]a/.test(start)) return 'image/gif'
  if (/^RIFF[^]{4}WEBP/.test(start)) return 'image/webp'
  if (/^[^]{4}ftypavi[fs]/.test(start)) return 'image/avif'
  if (start.startsWith('\0\0\x01\0')) return 'image/x-icon'
  return undefined
}

function isImageName(path: string): boolean {
  return /\.(?:avif|gif|ico|jpe?g|png|webp)$/i.test(path)
}
