import { commandOf } from './command.ts'
import { quoted, refused, variableInFrom } from './fault.ts'
import { Flags } from './flags.ts'
import type { MountOption, RunInstruction } from './instruction.ts'
import type { RawInstruction } from './lines.ts'

const mountsMax = 100

export function runOf(raw: RawInstruction): RunInstruction {
  const { line, text, words, heredocs } = raw
  const flags = new Flags(raw)
  checkMode(flags, line)
  const mounts = flags.list('mount').map((options) => mountOptions(options, line))
  if (mounts.length > mountsMax) throw refused(line, `more than ${mountsMax} mounts`)
  const [heredoc, ...others] = heredocs
  if (heredoc !== undefined && others.length === 0 && words?.length === 1)
    return { type: 'run', command: '', script: heredoc, mounts }
  const command = commandOf(raw)
  if (command.length === 0) throw refused(line, 'RUN takes a command')
  // The shell reads heredocs itself, from the text behind its line.
  const bodies = heredocs.map(({ name, content }) => `\n${content}${name}`)
  return { type: 'run', command: typeof command === 'string' ? [text, ...bodies].join('') : command, mounts }
}

function checkMode(flags: Flags, line: number): void {
  const network = flags.text('network')
  if (network === 'none' || network === 'host')
    throw refused(line, `--network=${network} is not supported: a RUN has the network of its sandbox`)
  if (network !== undefined && network !== 'default') throw refused(line, '--network takes default')
  const security = flags.text('security')
  if (security !== undefined && security !== 'sandbox')
    throw refused(line, '--security is not supported: a RUN is isolated as all that runs in a sandbox')
  if (flags.list('device').length > 0) throw refused(line, '--device is not supported: a sandbox has no devices')
}

/** The fields of a line of CSV: a field in double quotes may have commas, and two quotes for one. */
function mountOptions(text: string, line: number): MountOption[] {
  const fields: string[] = []
  let parts: string[] = []
  let isQuoted = false
  for (let at = 0; at < text.length; at++) {
    const char = text[at]!
    if (isQuoted && char === '"' && text[at + 1] === '"') parts.push(text[++at]!)
    else if (char === '"') isQuoted = !isQuoted
    else if (char === ',' && !isQuoted) {
      fields.push(parts.join(''))
      parts = []
    } else parts.push(char)
  }
  if (isQuoted) throw refused(line, `a " has no end, in ${quoted(text)}`)
  fields.push(parts.join(''))
  return fields.map((field) => {
    const equals = field.indexOf('=')
    const name = (equals < 0 ? field : field.slice(0, equals)).toLowerCase()
    const option = equals < 0 ? { name } : { name, value: field.slice(equals + 1) }
    if (name === 'from' && /\$./.test(option.value ?? '')) throw refused(line, variableInFrom('from of --mount'))
    return option
  })
}
