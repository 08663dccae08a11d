import type { Command } from 'commander'
import { readConfig } from '../config-file.ts'
import { examples } from '../options.ts'
import { columns, writeJson, writeLine } from '../output.ts'
import type { Flags } from '../settings.ts'

export function addContexts(program: Command): void {
  program
    .command('contexts')
    .description('list saved servers; * marks the current one')
    .addHelpText('after', examples('atoll contexts'))
    .action(async (_options: Flags, command: Command) => {
      const { current, contexts } = await readConfig()
      const all = Object.entries(contexts).map(([name, { url }]) => ({ name, url, current: name === current }))
      if (command.optsWithGlobals<Flags>().json) return await writeJson(all)
      const rows = all.map(({ name, url, current: isCurrent }) => [isCurrent ? '*' : ' ', name, url])
      await writeLine(columns([' ', 'NAME', 'URL'], rows))
    })
}
