import type { Command } from 'commander'
import type { ListeningPort } from '../../../sdk/src/index.ts'
import { writeList } from '../list.ts'
import { examples, sandboxPath } from '../options.ts'
import { clientOf, type Flags } from '../settings.ts'

export function addPorts(program: Command): void {
  program
    .command('ports')
    .description('list the ports on which something listens, with their URLs')
    .addHelpText('after', examples('atoll ports web'))
    .argument('<sandbox>')
    .action(async (id: string, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const client = await clientOf(flags)
      const ports = await client.json<ListeningPort[]>('GET', `${sandboxPath(id)}/ports`)
      await writeList(ports, flags, { PORT: ({ port }) => port, URL: ({ url }) => url })
    })
}
