import { Command, Help, type Option } from 'commander'
import { ownVersion } from '../lib/version.ts'
import { commandTable, foreignWords, synonyms, type Entry } from './command-table.ts'
import { UsageError } from './exit-codes.ts'
import { wholeNumber } from './options.ts'

const globalGroup = 'Global options:'

/** What help says of an argument that a command does not describe itself. */
const usualArguments: Record<string, string> = {
  sandbox: 'its id or name, see "atoll ls"',
  checkpoint: 'its id, or SANDBOX/NAME, see "atoll checkpoint ls"',
  session: 'its id or name, see "atoll session ls"',
  image: 'its name or id, see "atoll image ls"',
  volume: 'its name, see "atoll volume ls"',
}

/**
 * The command line for these arguments: the command that they name is read from its file, the others are names alone. `help` counts as the command
 * that it explains.
 */
export async function makeProgram(argv: readonly string[]): Promise<Command> {
  const program = emptyProgram()
  // Without commands it would read the flags behind them too.
  const { operands } = program.passThroughOptions().parseOptions([...argv])
  program.passThroughOptions(false)
  const [first = '', second = ''] = operands
  const instead = Object.hasOwn(foreignWords, first) ? foreignWords[first] : undefined
  if (instead !== undefined) throw new UsageError(`there is no command ${JSON.stringify(first)}: ${instead}`)
  await addCommands(program, first === 'help' ? second : first)
  return program
}

/** The command line with every command. */
export async function makeWholeProgram(): Promise<Command> {
  const program = emptyProgram()
  await addCommands(program, undefined)
  return program
}

/** The command that the words name below `command`, as far as they name one. */
export function commandNamed(command: Command, words: readonly string[]): Command {
  const [word, ...rest] = words
  const found = command.commands.find((one) => one.name() === word || one.aliases().includes(word ?? ''))
  return found === undefined ? command : commandNamed(found, rest)
}

/** `atoll session new`. */
export function pathOf(command: Command): string {
  return command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`
}

function emptyProgram(): Command {
  return new Command('atoll')
    .description('Cloud sandboxes and agent sessions of an Atoll server.')
    .usage('[options] COMMAND')
    .version(ownVersion(), '--version', 'print the version of this program')
    .optionsGroup(globalGroup)
    .option('--url <url>', 'the server (default: ATOLL_URL, then the saved one, then http://127.0.0.1:4100)')
    .option('--key <key>', 'the API key (default: ATOLL_API_KEY, then the saved one)')
    .option('--context <name>', 'a saved server, see "atoll contexts"')
    .option(
      '--request-timeout <seconds>',
      'how long the server may take to answer a request (default: 60)',
      wholeNumber,
    )
    .option('--json', 'print what the API answers, and errors as JSON')
    .enablePositionalOptions()
    .exitOverride()
    .configureOutput({ outputError: () => undefined })
    .configureHelp({ groupItems: globalsLast })
    .helpCommand(false)
    .showSuggestionAfterError(true)
    .addHelpText('after', '\n"atoll help COMMAND" has the flags and an example of each.')
}

/** The flags of a command itself are read first. */
function globalsLast<Item extends Command | Option>(...given: Parameters<typeof Help.prototype.groupItems<Item>>) {
  const groups = Help.prototype.groupItems<Item>(...given)
  const globals = groups.get(globalGroup)
  groups.delete(globalGroup)
  return globals === undefined ? groups : groups.set(globalGroup, globals)
}

/** `wanted`: the one to read from its file; undefined: all. */
async function addCommands(program: Command, wanted: string | undefined): Promise<void> {
  for (const [group, entries] of Object.entries(commandTable)) {
    program.commandsGroup(group)
    for (const entry of entries) {
      if (wanted === undefined || namesOf(entry.name).includes(wanted)) await addWhole(program, entry)
      else {
        const names = new Command(entry.name).summary(entry.summary).aliases(namesOf(entry.name).slice(1))
        program.addCommand(names, { hidden: entry.isHidden ?? false })
      }
    }
  }
  addHelp(program)
}

async function addWhole(program: Command, { name, summary, load }: Entry): Promise<void> {
  const add = await load()
  add(program)
  const command = commandNamed(program, [name])
  command.summary(summary)
  complete(
    command,
    program.options.filter(({ long }) => long !== '--version'),
  )
}

/** Gives a command and those below it the other names and the global flags, so that flags may stand behind it too. */
function complete(command: Command, globals: readonly Option[]): void {
  const own = [command.name(), ...command.aliases()]
  command.aliases(namesOf(command.name()).filter((name) => !own.includes(name)))
  command.helpCommand(false).enablePositionalOptions()
  for (const argument of command.registeredArguments) argument.description ||= usualArguments[argument.name()] ?? ''
  for (const option of globals) {
    if (!command.options.some(({ long }) => long === option.long)) command.addOption(option)
  }
  for (const sub of command.commands) complete(sub, globals)
}

/** The name and the other names of a command. */
function namesOf(name: string): string[] {
  const pair = synonyms.find((names) => names.some((one) => one === name)) ?? []
  return [name, ...pair.filter((other) => other !== name)]
}

function addHelp(program: Command): void {
  program
    .command('help')
    .summary('explain a command')
    .description('explain a command: its arguments, its flags and an example')
    .argument('[command...]', 'such as "session new"')
    .action(async (words: string[]) => {
      const command = commandNamed(program, words)
      const rest = words.slice(pathOf(command).split(' ').length - 1)
      // Commander names the nearest one.
      if (rest.length > 0 && command.commands.length > 0) await command.parseAsync(rest, { from: 'user' })
      if (rest.length > 0) throw new UsageError(`"${pathOf(command)}" has no commands below it`)
      command.help()
    })
}
