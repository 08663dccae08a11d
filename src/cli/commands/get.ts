import type { Command } from 'commander'
import { sandboxPath } from '../options.ts'
import { bold, printable, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

export function addGet(program: Command): void {
  program
    .command('get')
    .description('print what is known of a sandbox')
    .argument('<sandbox>')
    .action(async (id: string, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const client = await clientOf(flags)
      const info = await client.json<Record<string, unknown>>('GET', sandboxPath(id))
      if (flags.json) return await writeJson(info)
      const width = Math.max(...Object.keys(info).map((name) => name.length))
      for (const [name, value] of Object.entries(info)) {
        const text = typeof value === 'string' ? value : JSON.stringify(value)
        await writeLine(`${bold(name.padEnd(width))}  ${printable(text)}`)
      }
    })
}
