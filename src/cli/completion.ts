import type { Argument, Command, Option } from 'commander'
import { readConfig } from './config-file.ts'
import { printable } from './output.ts'
import { commandNamed, makeProgram } from './program.ts'
import type { Flags } from './settings.ts'

/** One word that may stand here, and what it means. */
export interface Candidate {
  value: string
  description?: string
}

export interface Completion {
  candidates: Candidate[]
  /** Names of files may stand here too. */
  hasFiles?: boolean
  /** The word goes on behind the candidate. */
  isOpen?: boolean
}

/** Where the words come to an end: the command that they name, what it was given, and what the last word is for. */
interface Place {
  command: Command
  operands: string[]
  flags: Flags
  /** The flag whose value comes next. */
  option?: Option | undefined
  isAfterDashes: boolean
}

/** Asks a server what may stand for an argument of this name. */
export type Lookup = (kind: string, flags: Flags, operands: readonly string[]) => Promise<Candidate[]>

const none: Completion = { candidates: [] }
/** What the server must be asked for, by the names of arguments and flags. */
const kinds = new Set(['sandbox', 'checkpoint', 'session', 'turn', 'image', 'template', 'volume', 'process', 'port'])
const kindOfOption: Record<string, string> = {
  template: 'template',
  checkpoint: 'checkpoint',
  sandbox: 'sandbox',
  session: 'session',
  context: 'context',
  at: 'turn',
}
/** Of arguments that are named by their part in the command. */
const kindOfArgument: Record<string, string> = { fork: 'session', against: 'session', to: 'turn' }
/** What a shell takes as one word without quotes. Names of other shapes are not offered. */
const word = /^[\w./:@%+,=-]+$/

/** What may stand in place of the last of the words behind `atoll`, which may be empty or begun. */
export async function complete(words: readonly string[], look: Lookup): Promise<Completion> {
  const current = words.at(-1) ?? ''
  const place = placeOf(await makeProgram(words.slice(0, -1)), words.slice(0, -1))
  const { candidates, ...rest } = await completionOf(place, current, look)
  const fitting = candidates.filter(({ value }) => value.startsWith(current) && word.test(value))
  return { candidates: fitting, ...rest }
}

function placeOf(program: Command, words: readonly string[]): Place {
  const place: Place = { command: program, operands: [], flags: {}, isAfterDashes: false }
  for (const text of words) {
    const { command, operands, option } = place
    if (option !== undefined) {
      note(place.flags, option, text)
      place.option = undefined
    } else if (text === '--') place.isAfterDashes = true
    else if (text.startsWith('-') && !place.isAfterDashes) place.option = begin(place, text)
    else {
      const below = operands.length === 0 ? command.commands.find((one) => namesOf(one).includes(text)) : undefined
      if (below !== undefined) place.command = below
      else {
        if (operands.length === 0) place.command = defaultOf(command) ?? command
        operands.push(text)
      }
    }
  }
  return place
}

/** Returns the flag that a word begins, if its value is the next word. */
function begin({ command, flags }: Place, text: string): Option | undefined {
  const [name = '', ...value] = text.split('=')
  const option = command.options.find(({ short, long }) => short === name || long === name)
  if (option === undefined) return undefined
  if (value.length > 0) note(flags, option, value.join('='))
  return value.length === 0 && option.required ? option : undefined
}

/** Flags that say which server is meant. */
function note(flags: Flags, option: Option, value: string): void {
  const name = option.attributeName()
  if (name === 'url' || name === 'key' || name === 'context') flags[name] = value
}

async function completionOf(place: Place, current: string, look: Lookup): Promise<Completion> {
  const { command, operands, flags, option, isAfterDashes } = place
  if (option !== undefined) {
    if (option.argChoices !== undefined) return { candidates: option.argChoices.map((value) => ({ value })) }
    return await ofKind(kindOfOption[option.attributeName()] ?? nameIn(option.flags), place, look)
  }
  // What a sandbox runs has words of its own.
  const isRemote = takesRest(command) && operands.length > 0
  if (current.startsWith('-') && !isAfterDashes && !(isRemote && operands.length > 1)) return ofFlags(command)
  if (command.commands.length > 0 && operands.length === 0) {
    const usual = defaultOf(command)
    const below = usual === undefined ? none : await completionOf({ ...place, command: usual }, current, look)
    return { ...below, candidates: [...ofCommands(command).candidates, ...below.candidates] }
  }
  if (isRemote) return none
  const argument = argumentAt(command, operands.length)
  if (argument === undefined) return none
  if (argument.argChoices !== undefined) return { candidates: argument.argChoices.map((value) => ({ value })) }
  if (argument.name() === 'command') return ofCommands(commandNamed(rootOf(command), operands))
  if (argument.name() === 'path' || argument.name() === 'target') {
    const sandboxes = current.includes(':') ? [] : await look('sandbox', flags, operands)
    const candidates = sandboxes.map(({ value, ...rest }) => ({ value: `${value}:`, ...rest }))
    return { candidates, hasFiles: argument.name() === 'path', isOpen: true }
  }
  return await ofKind(kindOfArgument[argument.name()] ?? argument.name(), place, look)
}

async function ofKind(named: string, { command, flags, operands }: Place, look: Lookup): Promise<Completion> {
  const kind = named === 'name' ? kindOfName(command) : named
  if (kind === 'file' || kind === 'folder') return { candidates: [], hasFiles: true }
  if (kind === 'context') return { candidates: await contexts() }
  return kinds.has(kind) ? { candidates: await look(kind, flags, operands) } : none
}

/** What has the name that a command takes, unless it gives one. */
function kindOfName(command: Command): string {
  if (command.name() === 'use' || command.name() === 'logout') return 'context'
  return command.parent?.name() === 'volume' && command.name() !== 'create' ? 'volume' : ''
}

async function contexts(): Promise<Candidate[]> {
  return Object.entries((await readConfig()).contexts).map(([value, { url }]) => ({ value, description: url }))
}

function ofFlags(command: Command): Completion {
  const options = [
    ...command.options,
    command
      .createHelp()
      .visibleOptions(command)
      .find(({ long }) => long === '--help'),
  ]
  return {
    candidates: options.flatMap((option) =>
      option === undefined || option.hidden || option.long === null || option.long === undefined
        ? []
        : [{ value: option.long, description: option.description }],
    ),
  }
}

function ofCommands(command: Command): Completion {
  const visible = command.createHelp().visibleCommands(command)
  return { candidates: visible.map((one) => ({ value: one.name(), description: one.summary() || one.description() })) }
}

function argumentAt({ registeredArguments }: Command, index: number): Argument | undefined {
  const last = registeredArguments.at(-1)
  return registeredArguments[index] ?? (last?.variadic ? last : undefined)
}

/** The command that a group stands for where none of it is named. Commander tells it to nobody. */
function defaultOf(command: Command): Command | undefined {
  const { _defaultCommandName: name } = command as unknown as { _defaultCommandName?: string | null }
  return command.commands.find((one) => one.name() === name)
}

/** The name of the value in `--flag <name>`. */
function nameIn(flags: string): string {
  return /<([^>]+)>/.exec(flags)?.[1] ?? ''
}

function takesRest(command: Command): boolean {
  return command.registeredArguments.length > 1 && command.registeredArguments.at(-1)?.name() === 'command'
}

function namesOf(command: Command): string[] {
  return [command.name(), ...command.aliases()]
}

function rootOf(command: Command): Command {
  return command.parent === null ? command : rootOf(command.parent)
}

/** A line for the shell: the word, and after a tab what it means. Lines that begin with a colon are for the script. */
export function linesOf({ candidates, hasFiles, isOpen }: Completion): string {
  const lines = candidates.map(({ value, description }) =>
    description === undefined ? value : `${value}\t${printable(description).replaceAll(/[\t\n]+/g, ' ')}`,
  )
  return [...lines, ...(hasFiles ? [':files'] : []), ...(isOpen ? [':open'] : [])].map((line) => `${line}\n`).join('')
}
