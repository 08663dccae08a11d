import { readFile } from 'node:fs/promises'
import { text } from 'node:stream/consumers'
import { Option, type Command } from 'commander'
import type { PatchInfo } from '../../../sdk/src/index.ts'
import { each } from '../each.ts'
import { type ListFlags, writeList } from '../list.ts'
import { checkedCheckpoint, checkedId, examples } from '../options.ts'
import { when, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

interface AddOptions extends Flags {
  description?: string
  strategy?: PatchInfo['strategy']
}

export function addPatch(program: Command): void {
  const patch = program
    .command('patch')
    .description('scripts that run in what starts from a checkpoint; "atoll patch CHECKPOINT FILE" adds one')
    .addHelpText('after', examples('atoll patch web/prepared setup.sh', 'atoll patch ls web/prepared'))
  patch
    .command('add', { isDefault: true })
    .description('have a script run in every sandbox that starts from a checkpoint, and print its id')
    .addHelpText('after', examples('atoll patch add web/prepared setup.sh'))
    .argument('<checkpoint>')
    .argument('<file>', 'the script; - reads standard input')
    .option('--description <text>', 'what it is for')
    .addOption(
      new Option(
        '--strategy <strategy>',
        'when it runs: at each start from it, or at each wake too (default: on_wake)',
      ).choices(['on_wake', 'on_resume']),
    )
    .action(async (id: string, file: string, _options: AddOptions, command: Command) => {
      const { description, strategy, ...flags } = command.optsWithGlobals<AddOptions>()
      const path = pathOf(id)
      const client = await clientOf(flags)
      const script = file === '-' ? await text(process.stdin) : await readFile(file, 'utf8')
      const call = { json: { script, description, strategy }, creates: true }
      const answer = await client.json<{ patch: PatchInfo }>('POST', path, call)
      if (flags.json) return await writeJson(answer)
      await writeLine(answer.patch.id)
    })
  patch
    .command('ls')
    .description('list the patches of a checkpoint in the order in which they run')
    .addHelpText('after', examples('atoll patch ls web/prepared'))
    .argument('<checkpoint>')
    .option('-q, --quiet', 'print ids alone')
    .action(async (id: string, _options: ListFlags, command: Command) => {
      const flags = command.optsWithGlobals<ListFlags>()
      const patches = await (await clientOf(flags)).json<PatchInfo[]>('GET', pathOf(id))
      await writeList(patches, flags, {
        ID: (one) => one.id,
        RUNS: (one) => one.strategy,
        ADDED: (one) => when(one.createdAt),
        DESCRIPTION: (one) => one.description,
        SCRIPT: (one) => one.script.split('\n', 1)[0],
      })
    })
  patch
    .command('rm')
    .description('take patches off a checkpoint')
    .addHelpText('after', examples('atoll patch rm web/prepared pa-0123456789abcdef'))
    .argument('<checkpoint>')
    .argument('<patch...>')
    .action(async (id: string, patchIds: string[], _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const paths = patchIds.map((patchId) => `${pathOf(id)}/${checkedId(patchId, 'pa-', 'patch')}`)
      const client = await clientOf(flags)
      await each(paths, flags, (path) => client.json('DELETE', path))
    })
}

function pathOf(checkpointId: string): string {
  return `/api/sandboxes/checkpoints/${encodeURIComponent(checkedCheckpoint(checkpointId))}/patches`
}
