import type { Command } from 'commander'
import { readConfig } from '../config-file.ts'
import { writeList } from '../list.ts'
import { examples } from '../options.ts'
import type { Flags } from '../settings.ts'

export function addContexts(program: Command): void {
  program
    .command('contexts')
    .description('list saved servers; * marks the current one')
    .addHelpText('after', examples('atoll contexts'))
    .action(async (_options: Flags, command: Command) => {
      const { current, contexts } = await readConfig()
      const all = Object.entries(contexts).map(([name, { url }]) => ({ name, url, current: name === current }))
      await writeList(all, command.optsWithGlobals<Flags>(), {
        ' ': (one) => (one.current ? '*' : ' '),
        NAME: (one) => one.name,
        URL: (one) => one.url,
      })
    })
}
