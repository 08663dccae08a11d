import { posix } from 'node:path'
import { defined } from '../../lib/defined.ts'
import { quoted, refused, suggestion } from './fault.ts'
import type { MountOption } from './instruction.ts'
import type { StepMount } from './operations.ts'
import { checkName } from './parse.ts'

/** The values of one `--mount`, with variables expanded. */
interface Values {
  line: number
  cwd: string
  type: StepMount['type']
  texts: ReadonlyMap<string, string>
  isReadOnly?: boolean
}

const names: Readonly<Record<string, string>> = {
  src: 'source',
  dst: 'target',
  destination: 'target',
  ro: 'readonly',
  rw: 'readwrite',
}
const everywhere = ['type', 'target', 'readonly', 'readwrite']
/** What each type takes beside that. */
const taken: Readonly<Record<StepMount['type'], readonly string[]>> = {
  bind: ['from', 'source'],
  cache: ['id', 'sharing', 'from', 'source', 'mode', 'uid', 'gid'],
  tmpfs: ['size'],
  secret: ['id', 'source', 'env', 'required', 'mode', 'uid', 'gid'],
}
const allNames = [...new Set([...everywhere, ...Object.values(taken).flat(), ...Object.keys(names)])]
const sharings = ['shared', 'private', 'locked'] as const
const idMax = 0xff_ff_ff_fe

/** A mount as its options say. `expand` gives the value of a word with variables. Throws with the line of what no mount has. */
export function mountOf(
  options: readonly MountOption[],
  { line, cwd, expand }: { line: number; cwd: string; expand: (word: string) => string },
): StepMount {
  const texts = new Map<string, string>()
  let isReadOnly: boolean | undefined
  for (const option of options) {
    const name = Object.hasOwn(names, option.name) ? names[option.name]! : option.name
    if (!allNames.includes(name))
      throw refused(line, `--mount has no option ${quoted(option.name)}${suggestion(option.name, allNames)}`)
    const isFlag = name === 'readonly' || name === 'readwrite' || name === 'required'
    if (option.value === undefined && !isFlag) throw refused(line, `--mount: ${name} takes a value: ${name}=…`)
    // A stage or an image is known before any variable is.
    const text = option.value === undefined ? 'true' : name === 'from' ? option.value : expand(option.value)
    texts.set(name, text)
    if (name === 'readonly' || name === 'readwrite') isReadOnly = (name === 'readonly') === isTrue(name, text, line)
  }
  const type = typeOf(texts.get('type') ?? 'bind', line)
  for (const name of texts.keys())
    if (![...everywhere, ...taken[type]].includes(name))
      throw refused(line, `--mount: ${name} is nothing for type=${type}`)
  const values = { line, cwd, type, texts, ...defined({ isReadOnly }) }
  switch (type) {
    case 'bind':
      return { type, target: targetOf(values), ...sourceOf(values), writable: isReadOnly === false }
    case 'cache':
      return cacheOf(values)
    case 'tmpfs': {
      const size = texts.get('size')
      return { type, target: targetOf(values), ...(size === undefined ? {} : { sizeBytes: sizeOf(size, line) }) }
    }
    case 'secret':
      return secretOf(values)
  }
}

function typeOf(text: string, line: number): StepMount['type'] {
  const type = text.toLowerCase()
  if (type === 'ssh') throw refused(line, '--mount=type=ssh is not supported: give a key as type=secret')
  if (!Object.hasOwn(taken, type))
    throw refused(line, `--mount has no type ${quoted(text)}${suggestion(text, Object.keys(taken))}`)
  return type as StepMount['type']
}

function cacheOf(values: Values): StepMount {
  const { line, texts } = values
  const target = targetOf(values)
  const text = texts.get('sharing') ?? 'shared'
  const sharing = sharings.find((known) => known === text.toLowerCase())
  if (sharing === undefined) throw refused(line, `--mount has no sharing=${quoted(text)}${suggestion(text, sharings)}`)
  const id = texts.get('id') || target
  return {
    type: 'cache',
    target,
    id,
    readOnly: values.isReadOnly === true,
    sharing,
    ...sourceOf(values),
    ...accessOf(values, 0o755),
  }
}

/** A file at `target`, a variable, or both; without either the file `/run/secrets/ID`. */
function secretOf(values: Values): StepMount {
  const { line, cwd, texts } = values
  const given = texts.get('target')
  const source = texts.get('source')
  if (source !== undefined && texts.has('id')) throw refused(line, '--mount: a secret has an id or a source')
  const id = texts.get('id') || source || (given === undefined ? '' : posix.basename(given))
  if (/^(?:.*\/)?\.{0,2}$/s.test(id)) throw refused(line, '--mount=type=secret takes id=…, which is no folder')
  const env = texts.get('env')
  if (env !== undefined) checkName('--mount', env, line)
  const file = given ?? (env === undefined ? `/run/secrets/${posix.basename(id)}` : undefined)
  const required = texts.get('required')
  return {
    type: 'secret',
    id,
    ...(file === undefined ? {} : { target: absolute(file, cwd, line) }),
    ...defined({ env }),
    required: required !== undefined && isTrue('required', required, line),
    ...accessOf(values, 0o400),
  }
}

/** Without one it is the working folder, as in `--mount=from=build`. */
function targetOf({ line, cwd, type, texts }: Values): string {
  const target = texts.get('target') ?? '.'
  if (target === '') throw refused(line, `--mount=type=${type}: its target is empty`)
  return absolute(target, cwd, line)
}

function absolute(path: string, cwd: string, line: number): string {
  // A folder of that name is what nobody means.
  if (/^~(?:\/|$)/.test(path)) throw refused(line, '--mount knows no ~: name the folder')
  const target = posix.resolve(cwd, path).replace(/\/$/, '')
  if (target === '') throw refused(line, '--mount has the root folder for its target: target=…')
  return target
}

function sourceOf({ texts }: Values): { from?: string; source: string } {
  const from = texts.get('from')
  // A source is never above the root of where it comes from.
  const source = posix.resolve('/', `./${texts.get('source') ?? ''}`)
  return { ...(from === undefined || from === '' ? {} : { from }), source }
}

function accessOf({ texts, line }: Values, modeDefault: number): { mode: number; uid: number; gid: number } {
  const number = (name: string, pattern: RegExp, base: number, max: number, otherwise: number): number => {
    const text = texts.get(name)
    if (text === undefined) return otherwise
    const value = pattern.test(text) ? Number.parseInt(text, base) : Infinity
    if (value > max) throw refused(line, `--mount: ${name} is no ${base === 8 ? 'octal mode' : 'id'}: ${quoted(text)}`)
    return value
  }
  return {
    mode: number('mode', /^[0-7]{1,8}$/, 8, 0o7777, modeDefault),
    uid: number('uid', /^\d{1,10}$/, 10, idMax, 0),
    gid: number('gid', /^\d{1,10}$/, 10, idMax, 0),
  }
}

/** Bytes, or a number with a unit of 1024: `512m`, `1.5GiB`. */
function sizeOf(text: string, line: number): number {
  const [, number, unit = ''] = /^(\d{1,15}(?:\.\d{1,15})?) ?([kmgtp]?)(?:i?b)?$/i.exec(text) ?? []
  const bytes = Math.floor(Number(number) * 1024 ** ' kmgtp'.indexOf(unit.toLowerCase() || ' '))
  if (number === undefined || !Number.isSafeInteger(bytes) || bytes === 0)
    throw refused(line, `--mount: size is no number of bytes: ${quoted(text)}`)
  return bytes
}

function isTrue(name: string, text: string, line: number): boolean {
  if (/^(?:1|t|true)$/i.test(text)) return true
  if (/^(?:0|f|false)$/i.test(text)) return false
  throw refused(line, `--mount: ${name} takes true or false, not ${quoted(text)}`)
}
