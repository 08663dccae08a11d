import { commandOf, listIn } from './command.ts'
import { copyOf } from './copy.ts'
import { bounded, quoted, refused, suggestion } from './fault.ts'
import { Flags } from './flags.ts'
import { healthcheckOf } from './healthcheck.ts'
import type { ArgInstruction, Instruction, Pair } from './instruction.ts'
import type { RawInstruction } from './lines.ts'
import { runOf } from './run.ts'
import { jsonWords, splitAtBlanks, splitWords } from './words.ts'

const instructionNames = [
  'ADD',
  'ARG',
  'CMD',
  'COPY',
  'ENTRYPOINT',
  'ENV',
  'EXPOSE',
  'FROM',
  'HEALTHCHECK',
  'LABEL',
  'MAINTAINER',
  'RUN',
  'SHELL',
  'STOPSIGNAL',
  'USER',
  'VOLUME',
  'WORKDIR',
]

/** Undefined for an instruction without effect. Throws `invalid_request` with the line of one whose form is wrong. */
export function parseInstruction(raw: RawInstruction, escape: string): Instruction | undefined {
  const { line, name, summary, text } = raw
  const written = { line, summary }
  const takesFlags = name === 'RUN' || name === 'COPY' || name === 'ADD' || name === 'HEALTHCHECK'
  // Those of the others are read for the fault alone.
  if (instructionNames.includes(name) && !takesFlags) void new Flags(raw)
  switch (name) {
    case 'RUN':
      return { ...written, ...runOf(raw) }
    case 'COPY':
    case 'ADD':
      return { ...written, ...copyOf(raw) }
    case 'ARG':
      return { ...written, ...argOf(raw, escape) }
    case 'ENV':
      return { ...written, type: 'env', pairs: pairsOf(raw, escape) }
    case 'LABEL':
      return { ...written, type: 'label', pairs: pairsOf(raw, escape) }
    case 'WORKDIR':
      return { ...written, type: 'workdir', word: needed(raw, 'a path') }
    case 'USER':
      return { ...written, type: 'user', word: needed(raw, 'a name or an id') }
    case 'STOPSIGNAL':
      return { ...written, type: 'stopsignal', word: needed(raw, 'a signal') }
    case 'EXPOSE':
      return { ...written, type: 'expose', words: bounded(splitAtBlanks(needed(raw, 'a port')), raw) }
    case 'VOLUME':
      return { ...written, type: 'volume', words: volumesOf(raw) }
    case 'CMD':
      return { ...written, type: 'cmd', command: commandOf(raw) }
    case 'ENTRYPOINT':
      return { ...written, type: 'entrypoint', command: commandOf(raw) }
    case 'SHELL': {
      const [program, ...words] = jsonWords(text) ?? []
      if (program === undefined || program === '')
        throw refused(line, 'SHELL takes a JSON list of words: ["/bin/bash", "-c"]')
      return { ...written, type: 'shell', words: [program, ...words] }
    }
    case 'HEALTHCHECK':
      return { ...written, type: 'healthcheck', healthcheck: healthcheckOf(raw) }
    case 'MAINTAINER':
      needed(raw, 'a name')
      return undefined
    case 'ONBUILD':
      throw refused(line, 'ONBUILD is not supported: an image here has no instructions for builds on it')
    default:
      throw refused(line, `${quoted(name)} is no instruction${suggestion(name, instructionNames)}`)
  }
}

export function argOf(raw: RawInstruction, escape: string): ArgInstruction {
  const words = splitWords(needed(raw, 'a name'), escape)
  if (words.length === 0) throw refused(raw.line, 'ARG takes a name')
  const args = bounded(words, raw).map((word) => {
    const equals = word.indexOf('=')
    const name = equals < 0 ? word : word.slice(0, equals)
    checkName('ARG', name, raw.line)
    return equals < 0 ? { name } : { name, value: word.slice(equals + 1) }
  })
  return { type: 'arg', args }
}

/** A variable is one of the environment of programs. */
export function checkName(instruction: string, name: string, line: number): void {
  if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name) || name.length > 1000)
    throw refused(line, `${quoted(name)} is no name of a variable for ${instruction}`)
}

/** `name=value …`, or the older `name value` with all that follows the first blank. */
function pairsOf(raw: RawInstruction, escape: string): Pair[] {
  const { line, name: instruction } = raw
  const text = needed(raw, 'name=value')
  const words = splitWords(text, escape)
  if (words[0]?.includes('=') !== true) {
    const [name = ''] = splitAtBlanks(text)
    const value = text.slice(name.length).trim()
    if (value === '') throw refused(line, `${instruction} ${quoted(name)} has no value: name=value`)
    return [{ name, value }]
  }
  return bounded(words, raw).map((word) => {
    const equals = word.indexOf('=')
    if (equals < 0) throw refused(line, `${quoted(word)} has no =: ${instruction} takes name=value`)
    if (equals === 0) throw refused(line, `${quoted(word)} has no name: ${instruction} takes name=value`)
    return { name: word.slice(0, equals), value: word.slice(equals + 1) }
  })
}

function volumesOf(raw: RawInstruction): string[] {
  const text = needed(raw, 'a path')
  const words = bounded(listIn(raw) ?? splitAtBlanks(text), raw)
  if (words.length === 0) throw refused(raw.line, 'VOLUME takes a path')
  return words
}

function needed({ line, name, text }: RawInstruction, what: string): string {
  if (text === '') throw refused(line, `${name} takes ${what}`)
  return text
}
