import { posix } from 'node:path'
import { ServiceError } from '../errors.ts'
import type { Manifest, ManifestStep } from './manifest.ts'

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
}

const instructionsMax = 1000
const heredocPattern = /<<(-?)(["']?)([A-Za-z_][A-Za-z0-9_]*)\2/
const variablePattern = /\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))/g

/**
 * The manifest of a Dockerfile. Known are `FROM` (an image of this server, once), `RUN`, `COPY` of a heredoc, `ENV`, `WORKDIR`, `USER`, `EXPOSE`
 * and `CMD`, which is kept and not run. Throws `invalid_request` with the line of anything else.
 */
export function manifestOf(dockerfile: string): Manifest {
  const steps: ManifestStep[] = []
  const shell: Shell = { cwd: '/', envs: {} }
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
  switch (name) {
    case 'RUN':
      return [{ type: 'run', args: { commands: [commandOf(instruction)], ...runsAs(shell) } }]
    case 'COPY': {
      if (heredoc === undefined) throw refused(line, 'COPY takes a heredoc alone: there is no build context')
      const path = absolute(substituted(heredoc.target, shell), shell)
      const target = path.endsWith('/') ? refusedTarget(line) : path
      const content = Buffer.from(heredoc.body).toString('base64')
      return [{ type: 'add_file', args: { path: target, content } }]
    }
    case 'ENV': {
      const vars = variablesOf(instruction, shell)
      Object.assign(shell.envs, vars)
      return [{ type: 'env', args: { vars } }]
    }
    case 'WORKDIR':
      shell.cwd = absolute(substituted(text, shell), shell)
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
  const [, name = '', rest = ''] = /^([A-Za-z_][A-Za-z0-9_]*)(?:\s+(.*))?$/s.exec(text) ?? []
  if (name !== '') return { [name]: substituted(rest, shell) }
  const vars: Record<string, string> = {}
  const pattern = /\s*([A-Za-z_][A-Za-z0-9_]*)=((?:"(?:[^"\\]|\\.)*"|'[^']*'|\\.|[^\s"'\\])*)(?=\s|$)/gy
  let end = 0
  for (const [whole, key = '', value = ''] of text.matchAll(pattern)) {
    end += whole.length
    vars[key] = unquoted(value, shell)
  }
  if (end < text.trimEnd().length || end === 0) throw refused(line, 'ENV takes NAME=value')
  return vars
}

function unquoted(value: string, shell: Shell): string {
  return value.replace(
    /"((?:[^"\\]|\\.)*)"|'([^']*)'|\\(.)|([^"'\\]+)/gs,
    (_, double?: string, single?: string, escaped?: string, plain?: string) => {
      if (single !== undefined) return single
      if (escaped !== undefined) return escaped
      return substituted((double ?? plain ?? '').replace(/\\(.)/gs, '$1'), shell)
    },
  )
}

function substituted(text: string, { envs }: Shell): string {
  return text.replace(variablePattern, (_, braced?: string, bare?: string) => envs[braced ?? bare ?? ''] ?? '')
}

function absolute(path: string, { cwd }: Shell): string {
  return path.endsWith('/') && path !== '/' ? `${posix.resolve(cwd, path)}/` : posix.resolve(cwd, path)
}

function refusedTarget(line: number): never {
  throw refused(line, 'COPY of a heredoc takes the path of a file')
}

function instructionsOf(dockerfile: string): Instruction[] {
  const lines = dockerfile.replaceAll('\r\n', '\n').split('\n')
  const found: Instruction[] = []
  for (let at = 0; at < lines.length; at++) {
    const line = at + 1
    if (isBlank(lines[at])) continue
    let text = (lines[at] ?? '').trim()
    while (text.endsWith('\\') && at + 1 < lines.length) {
      at += 1
      // A comment in the middle of an instruction is left out.
      if (!/^\s*#/.test(lines[at] ?? '')) text = `${text.slice(0, -1)}${lines[at] ?? ''}`.trimEnd()
      else text = `${text.slice(0, -1)}\\`
    }
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

function isBlank(line = ''): boolean {
  return /^\s*(?:#.*)?$/.test(line)
}

function refused(line: number, why: string): ServiceError {
  return new ServiceError('invalid_request', `dockerfile line ${line}: ${why}`, {
    details: { field: 'dockerfile', line },
  })
}
