import type { Command } from 'commander'
import { checkedId, sandboxPath } from '../options.ts'
import { writeJson } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

export function addRestore(program: Command): void {
  program
    .command('restore')
    .description('put a sandbox back to one of its checkpoints')
    .argument('<sandbox>')
    .argument('<checkpoint>')
    .action(async (id: string, checkpointId: string, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const client = await clientOf(flags)
      const path = `${sandboxPath(id)}/checkpoints/${checkedId(checkpointId, 'cp-', 'checkpoint')}/restore`
      const answer = await client.json('POST', path, { repeat: 'refused' })
      if (flags.json && answer !== undefined) await writeJson(answer)
    })
}
