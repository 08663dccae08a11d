import { Option, type Command } from 'commander'
import { Sandbox, type CheckpointKind } from '../../../sdk/src/index.ts'
import { checkedId, wholeNumber } from '../options.ts'
import { columns, hint, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

interface Options extends Flags {
  name?: string
  kind?: CheckpointKind
  keep?: number
  list?: boolean
}

export function addCheckpoint(program: Command): void {
  program
    .command('checkpoint')
    .description('keep this moment of a sandbox, its disk and memory, and print the id')
    .argument('<sandbox>')
    .option('--name <name>', 'how it is called')
    .addOption(new Option('--kind <kind>', 'with memory or without').choices(['full', 'disk_only']))
    .option('--keep <count>', 'delete the oldest beyond so many', wholeNumber)
    .option('-l, --list', 'list the checkpoints of the sandbox instead')
    .action(async (id: string, _options: Options, command: Command) => {
      const { json, list, name, kind, keep, ...flags } = command.optsWithGlobals<Options>()
      const sandbox = await Sandbox.connect(checkedId(id, 'sb-', 'sandbox'), { client: await clientOf(flags) })
      if (list) {
        const all = (await sandbox.checkpoints()).map(({ info }) => info)
        if (json) return await writeJson(all)
        const rows = all.map((info) => [info.id, info.name, info.kind, info.status, info.sizeBytes, info.createdAt])
        return await writeLine(columns(['ID', 'NAME', 'KIND', 'STATUS', 'BYTES', 'CREATED'], rows))
      }
      const checkpoint = await sandbox.checkpoint({ name, kind, keep })
      if (json) return await writeJson(checkpoint.info)
      await writeLine(checkpoint.id)
      hint(`atoll fork ${checkpoint.id}`)
    })
}
