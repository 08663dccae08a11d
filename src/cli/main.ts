import { CommanderError } from 'commander'
import { exitCodeOf, exitCodes, OwnFailure } from './exit-codes.ts'
import { reportFailure } from './failure.ts'
import { endOnSignals, endProcess } from './interrupt.ts'
import { makeProgram } from './program.ts'

endOnSignals()
process.stdout.on('error', endOnClosedPipe)
process.stderr.on('error', endOnClosedPipe)
process.on('uncaughtException', fail)
process.on('unhandledRejection', fail)

const program = makeProgram()
try {
  await program.parseAsync()
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
  reportFailure(error, isJson())
  if (error instanceof CommanderError) process.exit(exitCodes.usage)
  process.exit(error instanceof OwnFailure ? exitCodes.ownFailure : exitCodeOf(error))
}

/** Reads the raw arguments, since they may be those that could not be parsed. */
function isJson(): boolean {
  const end = process.argv.indexOf('--')
  return process.argv.slice(2, end === -1 ? undefined : end).includes('--json')
}

/** A reader that closes the pipe has read enough. */
function endOnClosedPipe(error: NodeJS.ErrnoException): void {
  if (error.code === 'EPIPE') return endProcess(exitCodes.done)
  fail(new Error(`the output cannot be written: ${error.message}`, { cause: error }))
}
