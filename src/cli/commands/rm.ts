import type { Command } from 'commander'
import { sandboxPath } from '../options.ts'
import { clientOf, type Flags } from '../settings.ts'

export function addRm(program: Command): void {
  program
    .command('rm')
    .description('stop sandboxes for good; their checkpoints stay')
    .argument('<sandbox...>')
    .action(async (ids: string[], _options: Flags, command: Command) => {
      const client = await clientOf(command.optsWithGlobals<Flags>())
      const paths = ids.map((id) => sandboxPath(id))
      // A missing one does not keep the others from being removed.
      const ends = await Promise.allSettled(paths.map((path) => client.json('DELETE', path)))
      for (const end of ends) if (end.status === 'rejected') throw end.reason
    })
}
