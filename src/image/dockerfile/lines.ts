import { defined } from '../../lib/defined.ts'
import { quoted, refused } from './fault.ts'
import { type Heredoc, type MarkedWord, markedWords } from './heredoc.ts'
import { jsonWords, splitFlags } from './words.ts'

/** An instruction as it stands in the text, with its continuation lines joined and comments left out. */
export interface RawInstruction {
  /** Of its beginning, from 1. */
  line: number
  /** In upper case. */
  name: string
  flags: readonly string[]
  /** What follows the flags. */
  text: string
  /** The words of the text, when it has heredocs. */
  words?: readonly MarkedWord[]
  heredocs: readonly Heredoc[]
  /** For logs: on one line, cut. */
  summary: string
}

export interface RawDockerfile {
  instructions: readonly RawInstruction[]
  /** What escapes a character and the end of a line: `\`, or `` ` `` by a directive. */
  escape: string
  /** What `# syntax` names. */
  syntax?: { line: number; value: string }
}

const textBytesMax = 1024 * 1024
const instructionsMax = 1000
const summaryCharsMax = 300
const namePattern = /^([A-Za-z]+)(?:[\t\v\f\r ]+|$)/
const takesHeredocs = new Set(['ADD', 'COPY', 'RUN'])

/** Throws `invalid_request` with the line of what is no instruction, of a heredoc without an end, and of a text beyond the bounds above. */
export function readInstructions(dockerfile: string): RawDockerfile {
  if (Buffer.byteLength(dockerfile) > textBytesMax) throw refused(1, `the text has more than ${textBytesMax} bytes`)
  const lines = new Lines(dockerfile.startsWith('\uFEFF') ? dockerfile.slice(1) : dockerfile)
  const { escape, syntax } = directivesOf(lines)
  const instructions: RawInstruction[] = []
  for (;;) {
    const first = lines.next()?.trimStart()
    if (first === undefined) break
    if (first === '' || first.startsWith('#')) continue
    const line = lines.line
    const text = joined(first, lines, escape)
    if (text === '') continue
    if (instructions.length === instructionsMax) throw refused(line, `more than ${instructionsMax} instructions`)
    instructions.push(instructionOf(text, line, lines))
  }
  return { instructions, escape, ...defined({ syntax }) }
}

/** A line that ends in the escape character goes on in the next one. Comments and blank lines in between are left out. */
function joined(first: string, lines: Lines, escape: string): string {
  const parts: string[] = []
  for (let next: string | undefined = first; next !== undefined; next = lines.next()) {
    const isInside = parts.length > 0
    if (isInside && /^\s*(?:#|$)/.test(next)) continue
    const end = continuationOf(next, escape)
    parts.push(next.slice(0, end))
    if (end === undefined) break
  }
  return parts.join('').trim()
}

/** Where a line is cut that goes on in the next one. A doubled escape character is one of the text. */
function continuationOf(text: string, escape: string): number | undefined {
  let end = text.length
  while (end > 0 && (text[end - 1] === ' ' || text[end - 1] === '\t')) end -= 1
  if (text[end - 1] !== escape || text[end - 2] === escape) return undefined
  return end - 1
}

function instructionOf(whole: string, line: number, lines: Lines): RawInstruction {
  const [start, word = ''] = namePattern.exec(whole) ?? []
  if (start === undefined) throw refused(line, `${quoted(whole)} begins with no instruction`)
  const name = word.toUpperCase()
  const { flags, rest } = splitFlags(whole.slice(start.length))
  const text = rest.trim()
  const raw = { line, name, flags, text }
  const summary = summaryOf(`${name} ${whole.slice(start.length)}`)
  if (!takesHeredocs.has(name) || !text.includes('<<') || jsonWords(text) !== undefined)
    return { ...raw, heredocs: [], summary }
  const words = markedWords(text, line)
  const heredocs = words.flatMap((marked) => {
    if (!('mark' in marked)) return []
    return [{ ...marked.mark, content: bodyOf(marked.mark.name, marked.mark.dropsTabs, line, lines) }]
  })
  if (heredocs.length === 0) return { ...raw, heredocs, summary }
  const [body = ''] = heredocs[0]!.content.split('\n', 1)
  return { ...raw, words, heredocs, summary: summaryOf(`${summary} (${body.trim()}…)`) }
}

/** The lines up to the one that is the delimiter alone. */
function bodyOf(name: string, dropsTabs: boolean, line: number, lines: Lines): string {
  const body: string[] = []
  for (;;) {
    const next = lines.next()
    if (next === undefined) throw refused(line, `the heredoc ${quoted(name)} has no end`)
    if ((dropsTabs ? next.replace(/^\t+/, '') : next) === name) return body.join('')
    body.push(`${next}\n`)
  }
}

/** `# syntax`, `# escape` and `# check` before anything else. Leaves `lines` at the first line that is none of them. */
function directivesOf(lines: Lines): { escape: string; syntax?: { line: number; value: string } } {
  const found = new Map<string, { line: number; value: string }>()
  for (let text = lines.peek(); text !== undefined; text = lines.peek()) {
    // The text may be a program of a system that runs Dockerfiles.
    const isProgram = lines.line === 0 && text.startsWith('#!')
    const [key, value] = isProgram ? [] : directiveOf(text)
    if (!isProgram && (key === undefined || value === undefined)) break
    lines.next()
    if (key === undefined || value === undefined) continue
    if (found.has(key)) throw refused(lines.line, `a second # ${key}`)
    found.set(key, { line: lines.line, value })
  }
  const escape = found.get('escape') ?? { line: 1, value: '\\' }
  if (escape.value !== '\\' && escape.value !== '`') throw refused(escape.line, '# escape takes \\ or `')
  const syntax = found.get('syntax')
  return { escape: escape.value, ...defined({ syntax }) }
}

function directiveOf(text: string): [key: string, value: string] | [] {
  const comment = text.trimStart()
  const equals = comment.indexOf('=')
  if (!comment.startsWith('#') || equals < 0) return []
  const key = comment.slice(1, equals).trim().toLowerCase()
  const value = comment.slice(equals + 1).trim()
  return value !== '' && ['syntax', 'escape', 'check'].includes(key) ? [key, value] : []
}

function summaryOf(text: string): string {
  const short = text
    .slice(0, 2 * summaryCharsMax)
    .replaceAll(/\s+/g, ' ')
    .trim()
  return short.length > summaryCharsMax ? `${short.slice(0, summaryCharsMax)}…` : short
}

/** The lines of a text one by one, without their ends. */
class Lines {
  /** Of the last line that `next` has given. */
  line = 0
  readonly #text: string
  #at = 0

  constructor(text: string) {
    this.#text = text
  }

  peek(): string | undefined {
    if (this.#at >= this.#text.length) return undefined
    const end = this.#text.indexOf('\n', this.#at)
    const text = this.#text.slice(this.#at, end < 0 ? undefined : end)
    const line = text.endsWith('\r') ? text.slice(0, -1) : text
    // No argument of a program, no path and no variable can have one.
    if (line.includes('\0')) throw refused(this.line + 1, 'there is a zero byte')
    return line
  }

  next(): string | undefined {
    const text = this.peek()
    if (text === undefined) return undefined
    const end = this.#text.indexOf('\n', this.#at)
    this.#at = end < 0 ? this.#text.length : end + 1
    this.line += 1
    return text
  }
}
