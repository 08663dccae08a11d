import { readFile } from 'node:fs/promises'
import { text } from 'node:stream/consumers'
import { Option, type Command } from 'commander'
import type { PatchInfo } from '../../../sdk/src/index.ts'
import { checkedId } from '../options.ts'
import { writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

interface Options extends Flags {
  description?: string
  strategy?: PatchInfo['strategy']
}

export function addPatch(program: Command): void {
  program
    .command('patch')
    .description('have a script run in every sandbox that starts from a checkpoint')
    .argument('<checkpoint>')
    .argument('<file>', 'the script; - reads standard input')
    .option('--description <text>', 'what it is for')
    .addOption(new Option('--strategy <strategy>', 'when it runs').choices(['on_wake', 'on_resume']))
    .action(async (id: string, file: string, _options: Options, command: Command) => {
      const { description, strategy, ...flags } = command.optsWithGlobals<Options>()
      const client = await clientOf(flags)
      const path = `/api/sandboxes/checkpoints/${checkedId(id, 'cp-', 'checkpoint')}/patches`
      const script = file === '-' ? await text(process.stdin) : await readFile(file, 'utf8')
      const call = { json: { script, description, strategy }, creates: true }
      const answer = await client.json<{ patch: PatchInfo }>('POST', path, call)
      if (flags.json) return await writeJson(answer)
      await writeLine(answer.patch.id)
    })
}
