import type { Command } from 'commander'
import { each } from '../each.ts'
import { examples, sandboxPath } from '../options.ts'
import { writeJson } from '../output.ts'
import { waiting } from '../progress.ts'
import { clientOf, type Flags } from '../settings.ts'

export function addWake(program: Command): void {
  program
    .command('wake')
    .description('wake hibernated sandboxes')
    .addHelpText('after', examples('atoll wake web', 'atoll wake $(atoll ls -q --tag env=test)'))
    .argument('<sandbox...>')
    .option('--cold', 'start it from its disk, and keep its memory as a checkpoint `before-cold-wake-<time>`')
    .action(async (ids: string[], _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags & { cold?: true }>()
      const json = flags.cold ? { memory: false } : {}
      const client = await clientOf(flags)
      const paths = ids.map((id) => sandboxPath(id))
      const work = each(paths, flags, async (path) => {
        const answer = await client.json('POST', `${path}/wake`, { json, repeat: 'always' })
        if (flags.json) await writeJson(answer)
      })
      await waiting(paths.length === 1 ? 'the sandbox wakes' : 'the sandboxes wake', work)
    })
}
