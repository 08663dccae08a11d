import type { Command } from 'commander'
import { examples, sandboxPath } from '../options.ts'
import { columns, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

interface ListeningPort {
  port: number
  url: string
}

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
      if (flags.json) return await writeJson(ports)
      await writeLine(
        columns(
          ['PORT', 'URL'],
          ports.map(({ port, url }) => [port, url]),
        ),
      )
    })
}
