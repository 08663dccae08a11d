import { ServiceError } from '../../errors.ts'
import { nearest } from '../../lib/nearest.ts'

const quotedCharsMax = 60
/** Of one instruction. */
const wordsMax = 5000

/** A fault in the text, with the line of its instruction. */
export function refused(line: number, why: string): ServiceError {
  return new ServiceError('invalid_request', `dockerfile line ${line}: ${why}`, {
    details: { field: 'dockerfile', line },
  })
}

/** A fault that shows when the build comes to the instruction. */
export function failed(line: number, why: string): ServiceError {
  return new ServiceError('build_failed', `dockerfile line ${line}: ${why}`, { details: { line } })
}

/** The message of a fault without its line, for one that names its step. */
export function withoutLine(message: string): string {
  return message.replace(/^dockerfile line \d+: /, '')
}

/** The words of an instruction. Throws with its line when there are too many. */
export function bounded<Word>(words: Word[], { name, line }: { name: string; line: number }): Word[] {
  if (words.length > wordsMax) throw refused(line, `${name} has more than ${wordsMax} words`)
  return words
}

/** Text of a Dockerfile in a message: its beginning, without control characters. */
export function quoted(text: string): string {
  return JSON.stringify(text.length > quotedCharsMax ? `${text.slice(0, quotedCharsMax)}…` : text)
}

/** The end of a message about a name that is not known. */
export function suggestion(name: string, known: Iterable<string>): string {
  const near = nearest(name, known)
  return near === undefined ? '' : `; did you mean ${near}?`
}

export function variableInFrom(where: string): string {
  return `${where} takes no variables: give the image a stage of its own, FROM … AS name`
}
