import type { Command } from 'commander'
import { Sandbox } from '../../../sdk/src/index.ts'
import { chosen, each, type AllFlags } from '../each.ts'
import { examples, sandboxPath } from '../options.ts'
import { clientOf } from '../settings.ts'

export function addRm(program: Command): void {
  program
    .command('rm')
    .description('stop sandboxes for good; their checkpoints stay')
    .addHelpText('after', examples('atoll rm web', 'atoll rm $(atoll ls -q --tag env=test)'))
    .argument('[sandbox...]')
    .option('--all', 'every sandbox, those of agent sessions too')
    .option('--yes', 'confirms --all')
    .action(async (ids: string[], _options: AllFlags, command: Command) => {
      const flags = command.optsWithGlobals<AllFlags>()
      const client = await clientOf(flags)
      const paths = (await chosen(ids, flags, 'sandbox', () => alive(client))).map((id) => sandboxPath(id))
      await each(paths, flags, (path) => client.json('DELETE', path))
    })
}

async function alive(client: Awaited<ReturnType<typeof clientOf>>): Promise<string[]> {
  const ids: string[] = []
  for await (const { sandboxID, status } of Sandbox.list({ client })) if (status !== 'stopped') ids.push(sandboxID)
  return ids
}
