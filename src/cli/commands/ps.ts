import type { Command } from 'commander'
import { Sandbox } from '../../../sdk/src/index.ts'
import { checkedId, examples } from '../options.ts'
import { columns, when, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'
import { sizeText } from '../units.ts'

interface Options extends Flags {
  quiet?: boolean
}

export function addPs(program: Command): void {
  program
    .command('ps')
    .description('list the processes of a sandbox, whoever has started them')
    .addHelpText('after', examples('atoll ps sb-0123456789abcdef'))
    .argument('<sandbox>')
    .option('-q, --quiet', 'print their numbers alone')
    .action(async (id: string, _options: Options, command: Command) => {
      const flags = command.optsWithGlobals<Options>()
      const sandbox = await Sandbox.connect(checkedId(id, 'sb-', 'sandbox'), { client: await clientOf(flags) })
      const processes = await sandbox.processes()
      if (flags.json) return await writeJson(processes)
      if (flags.quiet) {
        for (const { pid } of processes) await writeLine(String(pid))
        return
      }
      const rows = processes.map((one) => [
        ...[one.pid, one.parentPid, one.user, one.state, sizeText(one.memoryBytes), `${one.cpuSeconds.toFixed(1)} s`],
        ...[when(one.startedAt), one.command],
      ])
      await writeLine(columns(['PID', 'PARENT', 'USER', 'STATE', 'MEMORY', 'CPU', 'STARTED', 'COMMAND'], rows))
    })
}
