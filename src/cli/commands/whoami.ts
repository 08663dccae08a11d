import type { Command } from 'commander'
import { examples } from '../options.ts'
import { when, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

export function addWhoami(program: Command): void {
  program
    .command('whoami')
    .description('print whose key this is: its organisation, its id and what bounds it')
    .addHelpText('after', examples('atoll whoami'))
    .action(async (_options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const who = await (await clientOf(flags)).whoami()
      if (flags.json) return await writeJson(who)
      const { id, name, scopes, namePrefix, expiresAt } = who.key
      await writeLine(`${who.org_name ?? who.org_id}\nkey ${id}${name === '' ? '' : ` (${name})`}`)
      if (scopes !== null) await writeLine(`scopes ${scopes.join(' ')}`)
      if (namePrefix !== null) await writeLine(`names that begin with ${namePrefix}`)
      if (expiresAt !== null) await writeLine(`ends ${when(expiresAt)}`)
    })
}
