import { CommanderError, type Command } from 'commander'
import { reasonOf } from '../../sdk/src/reasons.ts'
import { exitCodeOf, exitCodes, OwnFailure } from './exit-codes.ts'
import { reportFailure } from './failure.ts'
import { endOnSignals, endProcess } from './interrupt.ts'
import type { Flags } from './settings.ts'
import { commandNamed, makeProgram, pathOf } from './program.ts'

endOnSignals()
process.stdout.on('error', endOnClosedPipe)
process.stderr.on('error', endOnClosedPipe)
process.on('uncaughtException', fail)
process.on('unhandledRejection', fail)

const argv = process.argv.slice(2)
let program: Command | undefined
try {
  program = await makeProgram(argv)
  await program.parseAsync(argv, { from: 'user' })
  // Output may still wait on macOS. Standard input may never end.
  await new Promise((resolve) => process.stdout.write('', resolve))
  process.exit()
} catch (error) {
  fail(error)
}

function fail(error: unknown): never {
  if (error instanceof CommanderError && error.exitCode === 0) process.exit(exitCodes.done)
  // Help was printed because no command was given.
  if (error instanceof CommanderError && error.code === 'commander.help') process.exit(exitCodes.usage)
  reportFailure(error, { isJson: program === undefined ? argv.includes('--json') : isJson(program), help: helpText() })
  if (error instanceof CommanderError) process.exit(exitCodes.usage)
  process.exit(error instanceof OwnFailure ? exitCodes.ownFailure : exitCodeOf(error))
}

/** Whether the program or the command was given the flag. Commands that were not named have no values. */
function isJson(command: Command): boolean {
  return command.opts<Flags>().json === true || command.commands.some((sub) => isJson(sub))
}

/** The command that was named, as `atoll help` takes it. */
function helpText(): string {
  if (program === undefined) return 'atoll help'
  const words = argv.filter((word) => !word.startsWith('-') && word !== 'help')
  return pathOf(commandNamed(program, words)).replace(/^atoll/, 'atoll help')
}

/** A reader that closes the pipe has read enough. */
function endOnClosedPipe(error: NodeJS.ErrnoException): void {
  if (error.code === 'EPIPE') return endProcess(exitCodes.done)
  fail(new Error(`the output cannot be written: ${reasonOf(error)}`, { cause: error }))
}
