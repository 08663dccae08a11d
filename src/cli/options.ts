import { InvalidArgumentError, type Command } from 'commander'
import type { VolumeMount } from '../../sdk/src/index.ts'
import { nameFault } from '../lib/resource-name.ts'
import { UsageError } from './exit-codes.ts'

const wholeNumberMax = 999_999_999

export function wholeNumber(text: string): number {
  if (!/^\d+$/.test(text)) throw new InvalidArgumentError('It must be a whole number.')
  if (Number(text) > wholeNumberMax) throw new InvalidArgumentError(`It must be at most ${wholeNumberMax}.`)
  return Number(text)
}

const unitSeconds: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 }

/** `7d`, `12h`, `30m` or `90s`. */
export function lifetime(text: string): number {
  const [, count, unit = ''] = /^(\d{1,8})([smhd])$/.exec(text) ?? []
  if (count === undefined || Number(count) === 0)
    throw new InvalidArgumentError('It must be a number with s, m, h or d behind it, such as 7d.')
  return Number(count) * (unitSeconds[unit] ?? 1)
}

export function portNumber(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0
  if (port < 1 || port > 65_535) throw new InvalidArgumentError('It must be a port, 1 to 65535.')
  return port
}

export function portNumbers(text: string, ports: readonly number[] = []): number[] {
  return [...ports, portNumber(text)]
}

/** Collects `--env NAME=VALUE`, given once or more. */
export function pair(text: string, pairs: Record<string, string> = {}): Record<string, string> {
  const at = text.indexOf('=')
  if (at < 1) throw new InvalidArgumentError('It must be NAME=VALUE.')
  return { ...pairs, [text.slice(0, at)]: text.slice(at + 1) }
}

/** Collects an option that is given once or more. */
export function list(text: string, texts: readonly string[] = []): string[] {
  return [...texts, text]
}

/** Collects `--volume NAME:/PATH[:ro]`, given once or more. */
export function volumeMount(text: string, mounts: readonly VolumeMount[] = []): VolumeMount[] {
  const [, name, path, readOnly] = /^([^:]+):(\/.*?)(:ro)?$/s.exec(text) ?? []
  if (name === undefined || path === undefined)
    throw new InvalidArgumentError('It must be NAME:/PATH or NAME:/PATH:ro.')
  return [...mounts, { name, path, readOnly: readOnly !== undefined }]
}

/** Text for `addHelpText('after', …)`: each line a command that can be typed. */
export function examples(...lines: string[]): string {
  return ['', lines.length === 1 ? 'Example:' : 'Examples:', ...lines.map((line) => `  ${line}`)].join('\n')
}

/**
 * Makes the command take everything from the first word behind its first argument as it is, `atoll exec SANDBOX ls -l`. Flags of its own stand
 * before that argument or right behind it; after `--` nothing is a flag.
 */
export function takesCommand(command: Command): Command {
  command.passThroughOptions()
  const parse = command.parseOptions.bind(command)
  command.parseOptions = (args) => {
    const { operands, unknown } = parse(args)
    const [target, ...behind] = operands
    if (target === undefined || unknown.length > 0) return { operands, unknown }
    const rest = parse(behind)
    return { operands: [target, ...rest.operands], unknown: rest.unknown }
  }
  return command
}

/** What a sandbox runs for the words of a command: one alone with a blank in it is a line of a shell. */
export function commandOf(words: readonly string[]): readonly string[] {
  const [line = ''] = words
  return words.length === 1 && line.includes(' ') ? ['sh', '-c', line] : words
}

/** The path of a sandbox, by its id or name. Throws for what is neither before the server is asked. */
export function sandboxPath(id: string): string {
  return `/api/sandboxes/${checkedId(id, 'sb-', 'sandbox')}`
}

/** The path of a checkpoint, by its id or as `SANDBOX/NAME`. */
export function checkpointPath(id: string): string {
  return `/api/checkpoints/${encodeURIComponent(checkedCheckpoint(id))}`
}

export function checkedCheckpoint(id: string): string {
  const [, sandbox, name] = /^([^/]+)\/([^/]+)$/.exec(id) ?? []
  if (sandbox === undefined || name === undefined) return checkedId(id, 'cp-', 'checkpoint')
  return `${checkedId(sandbox, 'sb-', 'sandbox')}/${checkedId(name, 'cp-', 'checkpoint')}`
}

/** Returns an id of the noun, or a name that a sandbox, a checkpoint or a session may have. */
export function checkedId(text: string, prefix: string, noun: string): string {
  const isId = /^[A-Za-z0-9_-]+$/.test(text) && text.startsWith(prefix)
  const isNamed = haveNames.has(prefix)
  const fault = nameFault(text)
  if (isId || (isNamed && fault === undefined)) return text
  const other = Object.entries(nouns).find(([start]) => start !== prefix && text.startsWith(start))?.[1]
  const begins = `ids begin with ${prefix}${isNamed ? `, a name ${fault}` : ''}`
  const why = other === undefined ? begins : `it is that of ${other}`
  throw new UsageError(`${JSON.stringify(text)} is no id ${isNamed ? 'or name ' : ''}of a ${noun}: ${why}`)
}

const haveNames = new Set(['sb-', 'cp-', 'session_'])

/** What ids are mistaken for another. */
const nouns: Record<string, string> = {
  'sb-': 'a sandbox',
  'cp-': 'a checkpoint',
  session_: 'a session',
  'es-': 'a process',
  'img-': 'an image',
  'pa-': 'a patch',
  'vol-': 'a volume',
}
