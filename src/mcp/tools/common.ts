import { z } from 'zod'
import type { ComparedFile } from '../../../sdk/src/index.ts'

export const sandboxId = z.string().min(1).describe('Its id, such as sb-4f9x…, or its name')
export const sessionId = z.string().min(1).describe('Such as session_4f9x…')
export const path = z.string().min(1).describe('Absolute path in the sandbox')
export const ttlSeconds = z.int().min(0).describe('Idle timeout in seconds; 0: never. Default 600')
export const onIdle = z
  .enum(['hibernate', 'stop'])
  .describe('After the idle timeout: hibernate keeps it for its next use, stop deletes it. Default hibernate')

/** Idle timeout of a sandbox that is not used any more. */
export const ttlSecondsDefault = 600

/** Characters of each text in a result: a model has to read it. */
const textCharactersMax = 30_000

/** The end of a text that is too long. Errors and results come last. */
export function lastPart(text: string): { text: string; isCut: boolean } {
  return { text: text.slice(-textCharactersMax), isCut: text.length > textCharactersMax }
}

/** The beginning of a text that is too long. */
export function firstPart(text: string): { text: string; isCut: boolean } {
  return { text: text.slice(0, textCharactersMax), isCut: text.length > textCharactersMax }
}

/** One character more than a result has, where there are as many. The rest is not read. */
export async function beginningOf(stream: ReadableStream<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder()
  let text = ''
  for await (const piece of stream) {
    text += decoder.decode(piece, { stream: true })
    if (text.length > textCharactersMax) break
  }
  return text
}

/** Files of a result. */
export const filesMax = 200

export const comparedFile = z.object({
  path: z.string(),
  old_path: z.string().optional(),
  change: z.string(),
  is_binary: z.boolean().optional(),
  added_lines: z.int(),
  removed_lines: z.int(),
})

export function fileOf({
  path: name,
  oldPath,
  change,
  isBinary,
  addedLines,
  removedLines,
}: ComparedFile): z.input<typeof comparedFile> {
  const binary = isBinary ? { is_binary: true } : {}
  return { path: name, old_path: oldPath, change, ...binary, added_lines: addedLines, removed_lines: removedLines }
}
