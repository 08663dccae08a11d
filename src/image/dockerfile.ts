import { posix } from 'node:path'
import { ServiceError } from '../errors.ts'
import type { Manifest } from './manifest.ts'
import type { ManifestStep } from './steps.ts'

/** An instruction with the number of its first line. A heredoc is the text that its `<<` stands for. */
interface Instruction {
  line: number
  name: string
  text: string
  heredoc?: { target: string; body: string }
}

/** What `WORKDIR`, `USER` and `ENV` have set so far. */
interface Shell {
  cwd: string
  user?: string
  envs: Record<string, string>
  substitutedChars: number
  /** Characters that were read one by one. */
  readChars: number
}

const linesMax = 20_000
const instructionsMax = 1000
/** Characters of all substitutions in a Dockerfile: lines that double a variable would grow without bound. */
const substitutedCharsMax = 1024 * 1024
/** Characters of all lists and paths in a Dockerfile: some milliseconds of work. */
const readCharsMax = 32 * 1024
/** The longest path that the kernel takes. */
const pathCharsMax = 4096
const heredocPattern = /<<(-?)(["']?)([A-Za-z_][A-Za-z0-9_]*)\2/
const variablePattern = /\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))/g
/** `NAME value`, the older form of `ENV`. */
const olderPattern = /^([A-Za-z_][A-Za-z0-9_]*)(?:\s+|$)/
const assignmentPattern = /\s*([A-Za-z_][A-Za-z0-9_]*)=/y
const plainPattern = /[^"'\\\s]+/y

/**
 * The manifest of a Dockerfile. It knows `FROM` (an image of this server, once), `RUN`, `COPY` of a heredoc, `ENV`, `WORKDIR`, `USER`, `EXPOSE`
 * and `CMD`, which is kept and not run. Throws `invalid_request` with the line of anything else, and of a text beyond the bounds above.
 */
export function manifestOf(dockerfile: string): Manifest {
  const steps: ManifestStep[] = []
  const shell: Shell = { cwd: '/', envs: {}, substitutedChars: 0, readChars: 0 }
  let base: string | undefined
  for (const instruction of instructionsOf(dockerfile)) {
    const { line, name, text } = instruction
    if (name === 'FROM') {
      if (base !== undefined) throw refused(line, 'a second FROM: builds have one stage')
      if (!/^[A-Za-z0-9][A-Za-z0-9._-]*$/.test(text))
        throw refused(line, 'FROM takes the name of an image of this server')
      base = text
      continue
    }
    if (base === undefined) throw refused(line, 'the first instruction must be FROM')
    steps.push(...stepsOf(instruction, shell))
  }
  if (base === undefined) throw refused(1, 'there is no FROM')
  const { envs, cwd, user } = shell
  return { base, steps, defaults: { envs, ...(cwd === '/' ? {} : { cwd }), ...(user === undefined ? {} : { user }) } }
}

function stepsOf(instruction: Instruction, shell: Shell): ManifestStep[] {
  const { line, name, text, heredoc } = instruction
  if (heredoc === undefined && (name !== 'RUN' || text.startsWith('['))) {
    shell.readChars += text.length
    if (shell.readChars > readCharsMax)
      throw refused(line, `variables, lists and paths have more than ${readCharsMax} characters together`)
  }
  switch (name) {
    case 'RUN':
      return [{ type: 'run', args: { commands: [commandOf(instruction)], ...runsAs(shell) } }]
    case 'COPY': {
      if (heredoc === undefined) throw refused(line, 'COPY takes a heredoc alone: there is no build context')
      const path = absolute(heredoc.target, line, shell)
      if (path.endsWith('/')) throw refused(line, 'COPY of a heredoc takes the path of a file')
      const content = Buffer.from(heredoc.body).toString('base64')
      return [{ type: 'add_file', args: { path, content } }]
    }
    case 'ENV': {
      const vars = variablesOf(instruction, shell)
      Object.assign(shell.envs, vars)
      return [{ type: 'env', args: { vars } }]
    }
    case 'WORKDIR':
      shell.cwd = absolute(text, line, shell)
      return [{ type: 'workdir', args: { path: shell.cwd } }]
    case 'USER':
      if (!/^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$/.test(text)) throw refused(line, 'USER takes one name or id')
      shell.user = text
      return []
    case 'EXPOSE':
    case 'CMD':
      return []
    default:
      throw refused(line, `${name} is not supported`)
  }
}

function runsAs({ cwd, user }: Shell): { cwd?: string; user?: string } {
  return { ...(cwd === '/' ? {} : { cwd }), ...(user === undefined ? {} : { user }) }
}

/** A shell command, a heredoc, or a list of words. */
function commandOf({ line, text, heredoc }: Instruction): string {
  if (text.startsWith('--')) throw refused(line, 'RUN takes no options')
  if (heredoc !== undefined && heredoc.target === '') return heredoc.body
  if (heredoc !== undefined) throw refused(line, 'RUN takes a heredoc alone')
  if (!text.startsWith('[')) return text
  const words = listOf(text)
  if (words === undefined) throw refused(line, 'a list of words must be JSON')
  return words.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(' ')
}

function listOf(text: string): string[] | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return Array.isArray(value) && value.every((word) => typeof word === 'string') ? value : undefined
  } catch {
    return undefined
  }
}

/** `NAME=value NAME2="with blanks"`, or the older `NAME value`. */
function variablesOf({ line, text }: Instruction, shell: Shell): Record<string, string> {
  const [start, name] = olderPattern.exec(text) ?? []
  if (start !== undefined && name !== undefined) return { [name]: substituted(text.slice(start.length), line, shell) }
  const vars: Record<string, string> = {}
  for (let at = 0; at < text.length;) {
    assignmentPattern.lastIndex = at
    const [assignment, key] = assignmentPattern.exec(text) ?? []
    if (assignment === undefined || key === undefined) throw refused(line, 'ENV takes NAME=value')
    const word = wordAt(text, at + assignment.length, line, shell)
    vars[key] = word.value
    at = word.end
  }
  if (Object.keys(vars).length === 0) throw refused(line, 'ENV takes NAME=value')
  return vars
}

/** A word with its quotes, up to a blank outside of them. Reads each character once. */
function wordAt(text: string, start: number, line: number, shell: Shell): { value: string; end: number } {
  const parts: string[] = []
  let at = start
  const upTo = (end: number): string => {
    if (end < 0 || end > text.length) throw refused(line, 'ENV takes NAME=value')
    const part = text.slice(at, end)
    at = end
    return part
  }
  while (at < text.length && !/\s/.test(text[at]!)) {
    const char = text[at]
    if (char === "'") parts.push(upTo(text.indexOf("'", at + 1) + 1 || -1).slice(1, -1))
    else if (char === '"')
      parts.push(substituted(upTo(closingQuote(text, at)).slice(1, -1).replaceAll(/\\(.)/gs, '$1'), line, shell))
    else if (char === '\\') parts.push(upTo(at + 2).slice(1))
    else {
      plainPattern.lastIndex = at
      parts.push(substituted(plainPattern.exec(text)![0], line, shell))
      at = plainPattern.lastIndex
    }
  }
  return { value: parts.join(''), end: at }
}

/** The place behind the double quote that closes the one at `start`; -1 without one. */
function closingQuote(text: string, start: number): number {
  for (let at = start + 1; at < text.length; at++) {
    if (text[at] === '\\') at++
    else if (text[at] === '"') return at + 1
  }
  return -1
}

function substituted(text: string, line: number, shell: Shell): string {
  return text.replaceAll(variablePattern, (_, braced?: string, bare?: string) => {
    const name = braced ?? bare ?? ''
    const value = Object.hasOwn(shell.envs, name) ? shell.envs[name]! : ''
    shell.substitutedChars += value.length
    if (shell.substitutedChars > substitutedCharsMax)
      throw refused(line, `variables stand for more than ${substitutedCharsMax} characters`)
    return value
  })
}

function absolute(text: string, line: number, shell: Shell): string {
  const path = posix.resolve(shell.cwd, substituted(text, line, shell))
  if (path.length > pathCharsMax) throw refused(line, `a path is longer than ${pathCharsMax} characters`)
  return text.endsWith('/') && path !== '/' ? `${path}/` : path
}

function instructionsOf(dockerfile: string): Instruction[] {
  const lines = dockerfile.replaceAll('\r\n', '\n').split('\n', linesMax + 1)
  if (lines.length > linesMax) throw refused(linesMax, `more than ${linesMax} lines`)
  const found: Instruction[] = []
  for (let at = 0; at < lines.length; at++) {
    const line = at + 1
    if (/^\s*(?:#.*)?$/.test(lines[at] ?? '')) continue
    const parts = [(lines[at] ?? '').trim()]
    while (parts.at(-1)!.endsWith('\\') && at + 1 < lines.length) {
      at += 1
      // A comment in the middle of an instruction is left out.
      if (/^\s*#/.test(lines[at] ?? '')) continue
      parts.push(parts.pop()!.slice(0, -1), (lines[at] ?? '').trimEnd())
    }
    const text = parts.join('').trimEnd()
    const [, name = '', rest = ''] = /^([A-Za-z]+)(?:\s+(.*))?$/s.exec(text) ?? []
    if (name === '') throw refused(line, 'not an instruction')
    const upper = name.toUpperCase()
    const mark = upper === 'RUN' || upper === 'COPY' ? heredocPattern.exec(rest) : null
    if (mark === null) found.push({ line, name: upper, text: rest.trim() })
    else {
      const [whole, dash, , word = ''] = mark
      const body: string[] = []
      const isEnd = (text_: string | undefined) => (dash === '' ? text_ : text_?.replace(/^\t+/, '')) === word
      for (at += 1; !isEnd(lines[at]); at++) {
        if (at >= lines.length) throw refused(line, `the heredoc ${word} has no end`)
        body.push(dash === '' ? (lines[at] ?? '') : (lines[at] ?? '').replace(/^\t+/, ''))
      }
      const target = rest.replace(whole, '').trim()
      found.push({
        line,
        name: upper,
        text: rest.trim(),
        heredoc: { target, body: body.map((it) => `${it}\n`).join('') },
      })
    }
    if (found.length > instructionsMax) throw refused(line, `more than ${instructionsMax} instructions`)
  }
  return found
}

function refused(line: number, why: string): ServiceError {
  return new ServiceError('invalid_request', `dockerfile line ${line}: ${why}`, {
    details: { field: 'dockerfile', line },
  })
}
