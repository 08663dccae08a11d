import type { Command } from 'commander'
import { writeList } from '../list.ts'
import { examples } from '../options.ts'
import { writeJson } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

/** What is counted of a limit. */
const usedOf: Readonly<Record<string, string>> = {
  runningSandboxesMax: 'runningSandboxes',
  sandboxesMax: 'sandboxes',
  memoryMbMax: 'memoryMB',
  cpuCountMax: 'cpuCount',
  checkpointsMax: 'checkpoints',
  sessionsMax: 'sessions',
  keysMax: 'keys',
}

export function addLimits(program: Command): void {
  program
    .command('limits')
    .description('print what the organisation may have, and what it has')
    .addHelpText('after', examples('atoll limits'))
    .action(async (_options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const own = await (await clientOf(flags)).limits()
      if (flags.json) return await writeJson(own)
      const used = own.usage as Record<string, number>
      await writeList(Object.entries(own.limits), flags, {
        LIMIT: ([name]) => name,
        MAY: ([, value]) => value ?? 'unbounded',
        HAS: ([name]) => used[usedOf[name] ?? ''] ?? '',
      })
    })
}
