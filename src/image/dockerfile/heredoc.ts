import { refused } from './fault.ts'
import { splitWords } from './words.ts'

export interface Heredoc {
  name: string
  /** As it stands in the text, with its tabs. */
  content: string
  /** No part of its word is quoted, so that `COPY` expands its variables. */
  expands: boolean
  /** `<<-`: tabs at the beginning of its lines are no part of it. */
  dropsTabs: boolean
}

export type HeredocMark = Omit<Heredoc, 'content'>

/** A word of an instruction, or the mark of a heredoc. */
export type MarkedWord = { word: string } | { mark: HeredocMark }

const markPattern = /^\d*<<(-?)([^<]*)$/s

/**
 * The words of a `RUN`, `COPY` or `ADD`, with the marks of heredocs: words that begin with `<<`, and also those whose `<<` stands apart from its word. A
 * shift in shell arithmetic is no mark.
 */
export function markedWords(text: string, line: number): MarkedWord[] {
  const words = splitWords(text, '\\')
  const found: MarkedWord[] = []
  let depth = 0
  for (let at = 0; at < words.length; at++) {
    const word = words[at]!
    const [, dash, rest = ''] = (depth === 0 && markPattern.exec(word)) || []
    depth += word.split('$((').length - 1 + (word.startsWith('((') ? 1 : 0)
    if (depth > 0) depth = Math.max(0, depth - (word.split('))').length - 1))
    if (dash === undefined) {
      found.push({ word })
      continue
    }
    let name = rest
    if (name === '') name = words[at + 1] ?? ''
    if (name === '' || name.includes('<')) {
      found.push({ word })
      continue
    }
    if (rest === '') at += 1
    found.push({ mark: { ...unquoted(name, line), dropsTabs: dash === '-' } })
  }
  return found
}

/** What a file of the heredoc holds. */
export function contentOf({ content, dropsTabs }: Heredoc): string {
  return dropsTabs ? content.replaceAll(/^\t+/gm, '') : content
}

/** The delimiter that a word stands for. A quote or a backslash in it keeps the content as it is, as in a shell. */
function unquoted(word: string, line: number): { name: string; expands: boolean } {
  const parts: string[] = []
  let quote = ''
  let expands = true
  for (let at = 0; at < word.length; at++) {
    const char = word[at]!
    if (char === '\\' && quote !== "'") {
      expands = false
      at += 1
      parts.push(word[at] ?? '')
    } else if (quote === '' && (char === '"' || char === "'")) {
      quote = char
      expands = false
    } else if (char === quote) quote = ''
    else parts.push(char)
  }
  if (quote !== '') throw refused(line, `the word of a heredoc has a ${quote} without an end`)
  return { name: parts.join(''), expands }
}
