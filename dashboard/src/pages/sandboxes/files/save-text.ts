import { type FileInfo, type Files, NotFoundError } from 'atoll-sdk'
import type { Place } from './place.ts'
import { readBounded, textBytesMax, type TextContent } from './read-file.ts'

/** What was read of a file, or last written to it. */
export interface TextBase {
  info: FileInfo
  content: TextContent
}

/** What has happened to a file since then. */
export type FileConflict = 'changed' | 'removed'

/** Looks whether a file is as it was. Its time has whole seconds, so one that looks the same is read. */
export async function conflictOf(
  files: Files,
  place: Place,
  { info, content }: TextBase,
): Promise<FileConflict | undefined> {
  try {
    const { size, modifiedAt, type } = await files.stat(place)
    if (size !== info.size || modifiedAt !== info.modifiedAt || type !== info.type) return 'changed'
    const bytes = await readBounded(files, place, { bytesMax: textBytesMax })
    return bytes !== undefined && isSame(bytes, content.bytes) ? undefined : 'changed'
  } catch (error) {
    if (error instanceof NotFoundError) return 'removed'
    throw error
  }
}

/** Writes a text as the file had it: with its line ends, unless they were mixed. Returns what a later write is compared with. */
export async function writeText(files: Files, place: Place, text: string, base: TextBase): Promise<TextBase> {
  const { lineEnds } = base.content
  const bytes = new TextEncoder().encode(lineEnds === 'crlf' ? text.replaceAll('\n', '\r\n') : text)
  await files.write(place, bytes)
  const info = await files.stat(place)
  return { info, content: { type: 'text', text, bytes, lineEnds: lineEnds === 'crlf' ? 'crlf' : 'lf' } }
}

function isSame(one: Uint8Array, other: Uint8Array): boolean {
  return one.length === other.length && one.every((byte, index) => byte === other[index])
}
