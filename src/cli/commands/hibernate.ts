import type { Command } from 'commander'
import { examples, sandboxPath } from '../options.ts'
import { writeJson } from '../output.ts'
import { waiting } from '../progress.ts'
import { clientOf, type Flags } from '../settings.ts'

export function addHibernate(program: Command): void {
  program
    .command('hibernate')
    .description('save the memory of a sandbox and let it go')
    .addHelpText('after', examples('atoll hibernate web'))
    .argument('<sandbox>')
    .action(async (id: string, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const client = await clientOf(flags)
      const answer = await waiting(
        'its memory is saved',
        client.json('POST', `${sandboxPath(id)}/hibernate`, { json: {}, repeat: 'always' }),
      )
      if (flags.json) await writeJson(answer)
    })
}
