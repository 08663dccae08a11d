import type { Command } from 'commander'
import { examples, sandboxPath } from '../options.ts'
import { writeJson } from '../output.ts'
import { waiting } from '../progress.ts'
import { clientOf, type Flags } from '../settings.ts'

export function addWake(program: Command): void {
  program
    .command('wake')
    .description('wake a hibernated sandbox')
    .addHelpText('after', examples('atoll wake web'))
    .argument('<sandbox>')
    .option('--cold', 'start it from its disk, and keep its memory as a checkpoint `before-cold-wake-<time>`')
    .action(async (id: string, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags & { cold?: true }>()
      const json = flags.cold ? { memory: false } : {}
      const client = await clientOf(flags)
      const answer = await waiting(
        'the sandbox wakes',
        client.json('POST', `${sandboxPath(id)}/wake`, { json, repeat: 'always' }),
      )
      if (flags.json) await writeJson(answer)
    })
}
