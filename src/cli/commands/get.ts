import type { Command } from 'commander'
import { writeFields } from '../fields.ts'
import { examples, sandboxPath } from '../options.ts'
import { clientOf, type Flags } from '../settings.ts'

export function addGet(program: Command): void {
  program
    .command('get')
    .description('print what is known of a sandbox')
    .addHelpText('after', examples('atoll get web', 'atoll get sb-0123456789abcdef --json'))
    .argument('<sandbox>')
    .action(async (id: string, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      await writeFields(await (await clientOf(flags)).json<object>('GET', sandboxPath(id)), flags)
    })
}
