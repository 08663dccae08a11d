import type { Command } from 'commander'
import { examples, sandboxPath, wholeNumber } from '../options.ts'
import { writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

interface Options extends Flags {
  cpu?: number
}

interface Sizes {
  memoryMB: number
  cpuPercent: number
}

export function addScale(program: Command): void {
  program
    .command('scale')
    .description('change the memory and CPU of a sandbox while it runs')
    .addHelpText('after', examples('atoll scale web 2048 --cpu 200'))
    .argument('<sandbox>')
    .argument('<MB>', 'memory; 0 for what it has', wholeNumber)
    .option('--cpu <percent>', 'CPU, 100 is one; by default in step with memory', wholeNumber)
    .action(async (id: string, memoryMB: number, _options: Options, command: Command) => {
      const { cpu: cpuPercent, ...flags } = command.optsWithGlobals<Options>()
      const client = await clientOf(flags)
      const call = { json: { memoryMB, cpuPercent }, repeat: 'always' } as const
      const sizes = await client.json<Sizes>('PUT', `${sandboxPath(id)}/limits`, call)
      if (flags.json) await writeJson(sizes)
      else await writeLine(`${sizes.memoryMB} MB, ${sizes.cpuPercent} % CPU`)
    })
}
