import type { Command } from 'commander'
import { CliError } from '../exit-codes.ts'
import { examples } from '../options.ts'
import { settingsOf, type Flags } from '../settings.ts'
import { runProgram } from './up.ts'

export function addDoctor(program: Command): void {
  program
    .command('doctor')
    .description('try what this machine can do')
    .addHelpText('after', examples('atoll doctor'))
    .action(async (_options: Flags, command: Command) => {
      const { url } = await settingsOf(command.optsWithGlobals<Flags>())
      const { hostname } = new URL(url)
      if (!['localhost', '127.0.0.1', '[::1]'].includes(hostname)) {
        throw new CliError(`${url} is another machine`, { hint: 'run "atoll doctor" there' })
      }
      process.exitCode = await runProgram('src/server/doctor.ts')
    })
}
