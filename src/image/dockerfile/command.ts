import { quoted, refused } from './fault.ts'
import type { Command } from './instruction.ts'
import type { RawInstruction } from './lines.ts'
import { jsonWords } from './words.ts'

/** The text of a command, or the words of a JSON list. A list that is no JSON is text. */
export function commandOf(raw: RawInstruction): Command {
  return listIn(raw) ?? raw.text
}

/** The words of a JSON list; undefined for other text. Throws for a list with something else than text in it. */
export function listIn({ line, text }: Pick<RawInstruction, 'line' | 'text'>): string[] | undefined {
  const words = jsonWords(text)
  if (words === null) throw refused(line, `${quoted(text)} has something else than text in its list`)
  return words
}
