import type { Command } from 'commander'
import { type ListFlags, writeList } from '../list.ts'
import { examples } from '../options.ts'
import { when } from '../output.ts'
import { sandboxOf } from '../settings.ts'
import { sizeText } from '../units.ts'

export function addPs(program: Command): void {
  program
    .command('ps')
    .description('list the processes of a sandbox, whoever has started them')
    .addHelpText('after', examples('atoll ps sb-0123456789abcdef'))
    .argument('<sandbox>')
    .option('-q, --quiet', 'print their numbers alone')
    .action(async (id: string, _options: ListFlags, command: Command) => {
      const flags = command.optsWithGlobals<ListFlags>()
      const sandbox = await sandboxOf(id, flags)
      await writeList(await sandbox.processes(), flags, {
        PID: (one) => one.pid,
        PARENT: (one) => one.parentPid,
        USER: (one) => one.user,
        STATE: (one) => one.state,
        MEMORY: (one) => sizeText(one.memoryBytes),
        CPU: (one) => `${one.cpuSeconds.toFixed(1)} s`,
        STARTED: (one) => when(one.startedAt),
        COMMAND: (one) => one.command,
      })
    })
}
