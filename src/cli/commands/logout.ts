import type { Command } from 'commander'
import { configPath, readConfig, writeConfig } from '../config-file.ts'
import { UsageError } from '../exit-codes.ts'
import { examples } from '../options.ts'
import { note } from '../output.ts'
import type { Flags } from '../settings.ts'

interface Options extends Flags {
  all?: boolean
}

export function addLogout(program: Command): void {
  program
    .command('logout')
    .description('remove a saved server and its key from this machine; the key itself stays valid')
    .addHelpText('after', examples('atoll logout', 'atoll logout work', 'atoll logout --all'))
    .argument('[name]', 'the saved server (default: the current one)')
    .option('--all', 'remove all that are saved')
    .action(async (named: string | undefined, _options: Options, command: Command) => {
      const { all, context } = command.optsWithGlobals<Options>()
      const { current, contexts } = await readConfig()
      if (all && named !== undefined) throw new UsageError('a name and --all do not go together')
      const name = named ?? context ?? current
      if (!all && (name === undefined || !Object.hasOwn(contexts, name))) {
        const names = Object.keys(contexts).join(', ') || 'none'
        const which = name === undefined ? 'no current context' : `no context ${JSON.stringify(name)}`
        throw new UsageError(`there is ${which}; there are: ${names}`)
      }
      const left = Object.entries(contexts).filter(([one]) => !all && one !== name)
      const isCurrentLeft = left.some(([one]) => one === current)
      await writeConfig({
        ...(isCurrentLeft && current !== undefined ? { current } : {}),
        contexts: Object.fromEntries(left),
      })
      note(`${all ? 'all keys are' : `the key of ${name} is`} removed from ${configPath()}`)
      if (process.env['ATOLL_API_KEY']) note('ATOLL_API_KEY is set and is used on')
    })
}
