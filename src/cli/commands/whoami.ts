import type { Command } from 'commander'
import { examples } from '../options.ts'
import { writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

export function addWhoami(program: Command): void {
  program
    .command('whoami')
    .description('print whose key this is: its organisation and its id, not the key')
    .addHelpText('after', examples('atoll whoami'))
    .action(async (_options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const who = await (await clientOf(flags)).whoami()
      if (flags.json) return await writeJson(who)
      await writeLine(`${who.org_name ?? who.org_id}\nkey ${who.key.id}`)
    })
}
