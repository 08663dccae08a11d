import type { Command } from 'commander'
import { readConfig, writeConfig } from '../config-file.ts'
import { UsageError } from '../exit-codes.ts'
import { examples } from '../options.ts'

export function addUse(program: Command): void {
  program
    .command('use')
    .description('make a saved server the current one')
    .addHelpText('after', examples('atoll use work'))
    .argument('<name>')
    .action(async (name: string) => {
      const config = await readConfig()
      if (!Object.hasOwn(config.contexts, name)) {
        const names = Object.keys(config.contexts).join(', ') || 'none'
        throw new UsageError(`there is no context ${JSON.stringify(name)}; there are: ${names}`)
      }
      await writeConfig({ ...config, current: name })
    })
}
