import { spawn } from 'node:child_process'
import type { Command } from 'commander'
import { examples, portNumber } from '../options.ts'
import { note, writeJson, writeLine } from '../output.ts'
import { sandboxOf, type Flags } from '../settings.ts'

export function addOpen(program: Command): void {
  program
    .command('open')
    .description('print the URL of a port, and open it in a browser on a terminal')
    .addHelpText('after', examples('atoll open web 3000'))
    .argument('<sandbox>')
    .argument('<port>', '', portNumber)
    .action(async (id: string, port: number, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const sandbox = await sandboxOf(id, flags)
      const url = sandbox.url(port)
      if (flags.json) return await writeJson({ url })
      await writeLine(url)
      if (!process.stdout.isTTY) return
      const isListening = (await sandbox.ports()).some((one) => one.port === port)
      if (!isListening) note(`nothing listens on port ${port} yet`)
      browse(url)
    })
}

/** Failures are ignored: the URL is printed already. */
function browse(url: string): void {
  const program = process.platform === 'darwin' ? 'open' : 'xdg-open'
  spawn(program, [url], { stdio: 'ignore', detached: true })
    .on('error', () => undefined)
    .unref()
}
