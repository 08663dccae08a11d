import type { Command } from 'commander'
import { writePatch, writeStat } from '../diff-output.ts'
import { UsageError } from '../exit-codes.ts'
import { checkedCheckpoint, examples } from '../options.ts'
import { writeJson } from '../output.ts'
import { type Flags, sandboxOf } from '../settings.ts'

interface DiffOptions extends Flags {
  folder?: string
  stat?: boolean
}

export function addDiff(program: Command): void {
  program
    .command('diff')
    .description('print how the files of two checkpoints differ, or of one and the present')
    .addHelpText(
      'after',
      examples('atoll diff web v1', 'atoll diff web v1 v2 --stat', 'atoll diff web v1 --folder /etc | git apply -R'),
    )
    .argument('<sandbox>')
    .argument('<checkpoint>', 'of its tree: an id, a name, or SANDBOX/NAME')
    .argument('[later]', 'another (default: the present)')
    .option('--folder <path>', 'the folder whose files are compared (default: /workspace)')
    .option('--stat', 'print the files and how many lines of them')
    .action(async (id: string, from: string, to: string | undefined, _options: DiffOptions, command: Command) => {
      const { folder, stat: isStat = false, ...flags } = command.optsWithGlobals<DiffOptions>()
      if (isStat && flags.json === true) throw new UsageError('--stat and --json exclude each other')
      const named = { from: checkedCheckpoint(from), to: to === undefined ? undefined : checkedCheckpoint(to), folder }
      const sandbox = await sandboxOf(id, flags)
      if (flags.json === true) return await writeJson(await sandbox.diff(named))
      if (isStat) return await writeStat(await sandbox.diff(named))
      await writePatch(await sandbox.patchStream(named))
    })
}
