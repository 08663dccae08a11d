import type { Command } from 'commander'
import type { SandboxTree } from '../../../sdk/src/index.ts'
import { examples, sandboxPath } from '../options.ts'
import { hasColors, note, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'
import { treeText } from '../tree-output.ts'

export function addTree(program: Command): void {
  program
    .command('tree')
    .description('draw where a sandbox comes from, its checkpoints, and what was started from them')
    .addHelpText('after', examples('atoll tree web', 'atoll tree web --json'))
    .argument('<sandbox>')
    .action(async (id: string, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const tree = await (await clientOf(flags)).json<SandboxTree>('GET', `${sandboxPath(id)}/tree`)
      if (flags.json) return await writeJson(tree)
      const { isTTY: isTerminal, columns } = process.stdout
      const drawing = isTerminal ? { widthMax: columns || 80, hasColors: hasColors() } : { isExact: true }
      await writeLine(treeText(tree, drawing))
      if (tree.isCut) note(`these are the first ${tree.nodes.length}; there are more`)
    })
}
