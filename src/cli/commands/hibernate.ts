import type { Command } from 'commander'
import { each } from '../each.ts'
import { examples, sandboxPath } from '../options.ts'
import { writeJson } from '../output.ts'
import { waiting } from '../progress.ts'
import { clientOf, type Flags } from '../settings.ts'

export function addHibernate(program: Command): void {
  program
    .command('hibernate')
    .description('save the memory of sandboxes and let them go')
    .addHelpText('after', examples('atoll hibernate web', 'atoll hibernate $(atoll ls -q --tag env=test)'))
    .argument('<sandbox...>')
    .action(async (ids: string[], _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const client = await clientOf(flags)
      const paths = ids.map((id) => sandboxPath(id))
      const call = { json: {}, repeat: 'always' } as const
      const work = each(paths, flags, async (path) => {
        const answer = await client.json('POST', `${path}/hibernate`, call)
        if (flags.json) await writeJson(answer)
      })
      await waiting('memory is saved', work)
    })
}
