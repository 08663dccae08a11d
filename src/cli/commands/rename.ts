import type { Command } from 'commander'
import { UsageError } from '../exit-codes.ts'
import { examples, sandboxPath } from '../options.ts'
import { writeJson } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

interface Options extends Flags {
  none?: true
}

export function addRename(program: Command): void {
  program
    .command('rename')
    .description('give a sandbox another name, or none')
    .addHelpText('after', examples('atoll rename web shop', 'atoll rename web --none'))
    .argument('<sandbox>')
    .argument('[name]', 'a-z, 0-9 and -, at most 63')
    .option('--none', 'take its name away')
    .action(async (id: string, name: string | undefined, _options: Options, command: Command) => {
      const { none: isNone = false, ...flags } = command.optsWithGlobals<Options>()
      if (isNone === (name !== undefined)) throw new UsageError('either a name or --none is needed')
      const client = await clientOf(flags)
      const call = { json: { name: name ?? null }, repeat: 'always' } as const
      const answer = await client.json('PATCH', sandboxPath(id), call)
      if (flags.json) await writeJson(answer)
    })
}
