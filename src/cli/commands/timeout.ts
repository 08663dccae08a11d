import type { Command } from 'commander'
import { examples, sandboxPath, wholeNumber } from '../options.ts'
import { writeJson } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

export function addTimeout(program: Command): void {
  program
    .command('timeout')
    .description('set the idle timeout of a sandbox; 0 for none')
    .addHelpText('after', examples('atoll timeout web 3600'))
    .argument('<sandbox>')
    .argument('<seconds>', '', wholeNumber)
    .action(async (id: string, timeout: number, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const client = await clientOf(flags)
      const call = { json: { timeout }, repeat: 'always' } as const
      const answer = await client.json('POST', `${sandboxPath(id)}/timeout`, call)
      if (flags.json && answer !== undefined) await writeJson(answer)
    })
}
