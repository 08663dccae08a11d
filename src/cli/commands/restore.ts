import type { Command } from 'commander'
import { checkedCheckpoint, examples, sandboxPath } from '../options.ts'
import { writeJson } from '../output.ts'
import { waiting } from '../progress.ts'
import { clientOf, type Flags } from '../settings.ts'

export function addRestore(program: Command): void {
  program
    .command('restore')
    .description('put a sandbox back to one of its checkpoints')
    .addHelpText('after', examples('atoll restore web web/prepared'))
    .argument('<sandbox>')
    .argument('<checkpoint>', 'its id or name')
    .action(async (id: string, checkpointId: string, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const client = await clientOf(flags)
      const path = `${sandboxPath(id)}/checkpoints/${encodeURIComponent(checkedCheckpoint(checkpointId))}/restore`
      const answer = await waiting('the sandbox is put back', client.json('POST', path, { repeat: 'refused' }))
      if (flags.json && answer !== undefined) await writeJson(answer)
    })
}
