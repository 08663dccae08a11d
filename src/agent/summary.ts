import { isAbsolute, relative } from 'node:path'
import { isRecord } from '../lib/json.ts'
import type { TokenUsage } from '../lib/model-price.ts'
import { toolNames, type AgentEventOf } from '../protocol/agent.ts'

/** One short line, for a person. */
const summaryCharactersMax = 200

/** Describes a tool call in one line for a person. `args` come from the model and can be anything. */
export function summarise(tool: string, args: unknown, result: unknown, isError: boolean, cwd: string): string {
  const describe = Object.hasOwn(descriptions, tool) ? descriptions[tool] : undefined
  const did = describe?.(shortPath(pathOf(args), cwd), args) ?? `Called ${tool}`
  const firstLine = isError ? resultText(result).trim().split('\n').at(-1) : undefined
  return inOneLine(firstLine ? `${did}: ${firstLine}` : did)
}

function resultText(result: unknown): string {
  const content = isRecord(result) ? result['content'] : undefined
  if (!Array.isArray(content)) return ''
  return content.map((block: unknown) => text(block, 'text')).join('')
}

export function inOneLine(value: string, charactersMax: number = summaryCharactersMax): string {
  const line = value.replaceAll(/\s+/g, ' ').trim()
  return line.length <= charactersMax ? line : `${line.slice(0, charactersMax - 1).toWellFormed()}…`
}

const descriptions: Readonly<Record<string, (path: string, args: unknown) => string>> = {
  bash: (_path, args) => `Ran ${inOneLine(bashTitle(text(args, 'command')), 120)}`,
  read: (path) => `Read ${path}`,
  write: (path, args) => `Wrote ${path} (${Buffer.byteLength(text(args, 'content'))} bytes)`,
  edit: (path) => `Edited ${path}`,
  glob: (path, args) => `Looked for files ${text(args, 'pattern')} in ${path}`,
  grep: (path, args) => `Searched for ${text(args, 'pattern')} in ${path}`,
  ls: (path) => `Listed ${path}`,
}

/** The file of a call, by any of the parameter names that harnesses use. */
export function pathOf(args: unknown): string {
  for (const key of ['path', 'file_path', 'filePath', 'absolute_path']) {
    const found = text(args, key)
    if (found !== '') return found
  }
  return ''
}

/** A leading comment is the title of its script. */
function bashTitle(command: string): string {
  return /^#[ \t]*(\S[^\n]*)\n/.exec(command)?.[1] ?? command
}

function shortPath(path: string, cwd: string): string {
  if (path === '') return '.'
  const short = isAbsolute(path) ? relative(cwd, path) : path
  return short.startsWith('..') ? path : short || '.'
}

function text(value: unknown, key: string): string {
  const found = isRecord(value) ? value[key] : undefined
  return typeof found === 'string' ? found : ''
}

/** Usage in the form of events. */
export function reportedUsage(usage: TokenUsage): AgentEventOf<'result'>['usage'] {
  return {
    input_tokens: usage.inputTokens,
    cache_read_input_tokens: usage.cacheReadTokens,
    cache_creation_input_tokens: usage.cacheWriteTokens,
    output_tokens: usage.outputTokens,
  }
}

/** Agents' names of the protocol's tools, in lower case without `_`, `-` and blanks. */
const otherNames: Record<string, string> = {
  runshellcommand: 'bash',
  shell: 'bash',
  terminal: 'bash',
  execute: 'bash',
  exec: 'bash',
  readfile: 'read',
  readmanyfiles: 'read',
  writefile: 'write',
  createfile: 'write',
  replace: 'edit',
  multiedit: 'edit',
  notebookedit: 'edit',
  strreplace: 'edit',
  applypatch: 'edit',
  find: 'glob',
  findfiles: 'glob',
  grepsearch: 'grep',
  searchfilecontent: 'grep',
  search: 'grep',
  listdirectory: 'ls',
  list: 'ls',
}

/** The protocol's name of an agent's tool. A tool that the protocol does not know keeps its name. */
export function protocolToolName(name: string): string {
  const plain = name.toLowerCase().replaceAll(/[_\-\s]/g, '')
  if ((toolNames as readonly string[]).includes(plain)) return plain
  return (Object.hasOwn(otherNames, plain) ? otherNames[plain] : undefined) ?? name
}
