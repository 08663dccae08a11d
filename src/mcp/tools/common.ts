import { z } from 'zod'

export const sandboxId = z.string().min(1).describe('Its id, such as sb-4f9x…, or its name')
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
