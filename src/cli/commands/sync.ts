import { stat } from 'node:fs/promises'
import { resolve } from 'node:path'
import type { Command } from 'commander'
import { Sandbox } from '../../../sdk/src/index.ts'
import { UsageError } from '../exit-codes.ts'
import { parseLocation } from '../location.ts'
import { examples, list } from '../options.ts'
import { note, printable, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'
import type { Direction, Plan } from '../sync/plan.ts'
import { sync } from '../sync/sync.ts'

interface Options extends Flags {
  pull?: boolean
  both?: boolean
  delete?: boolean
  once?: boolean
  exclude?: string[]
  gitignore?: boolean
  user?: string
}

/** Beyond it the first round is told as a number. */
const linesMax = 20

export function addSync(program: Command): void {
  program
    .command('sync')
    .description(
      'keep a folder of a sandbox like one here: copy what differs, then watch and send changes and removals.\n\n' +
        'This machine wins: what changes in the sandbox is overwritten by the next change here. With --pull the sandbox wins, and this folder ' +
        'is only written to. With --both each side gets what the other changes; of a file that both have changed this machine’s wins, and a ' +
        'change wins over a removal. Of what only one side has when it begins, nothing is removed without --delete.',
    )
    .addHelpText(
      'after',
      examples(
        'atoll sync --gitignore . sb-0123456789abcdef:/workspace/app',
        'atoll sync --pull --exclude "*.tmp" results sb-0123456789abcdef:/workspace/results',
      ),
    )
    .argument('<folder>', 'a folder here')
    .argument('<target>', 'SANDBOX:/path')
    .option('--pull', 'the sandbox wins: this folder follows it')
    .option('--both', 'changes go both ways')
    .option('--delete', 'begin with the removal of what the winning side lacks; not with --both')
    .option('--once', 'end after the first copy')
    .option('--exclude <pattern>', 'what is on no side, as in .gitignore; may be repeated', list)
    .option('--gitignore', 'leave out what the .gitignore files here name, and .git')
    .option('--user <name>', 'who reads or writes there, by name or id')
    .action(async (folder: string, target: string, _options: Options, command: Command) => {
      await run(folder, target, command.optsWithGlobals<Options>())
    })
}

async function run(folder: string, target: string, flags: Options): Promise<void> {
  const { exclude = [], gitignore = false, once = false, user } = flags
  const location = parseLocation(target)
  if (location.sandbox === undefined) throw new UsageError(`${JSON.stringify(target)} is no SANDBOX:/path`)
  if (parseLocation(folder).sandbox !== undefined) throw new UsageError('the first folder is one here')
  const isFolder = await stat(folder).then(
    (found) => found.isDirectory(),
    () => false,
  )
  if (!isFolder) throw new UsageError(`there is no folder ${folder}`)
  const direction = directionOf(flags)
  const client = await clientOf(flags)
  const sandbox = await Sandbox.connect(location.sandbox, { client })
  await sync(
    { client, sandbox, user, here: resolve(folder), there: location.path },
    {
      ...{ direction, once },
      rules: { exclude, gitignore },
      removes: flags.delete ?? false,
      done: (plan, isFirst) => tell(plan, isFirst, { isJson: flags.json ?? false, once }),
    },
  )
}

function directionOf({ pull = false, both = false, delete: removes = false }: Options): Direction {
  if (pull && both) throw new UsageError('--pull and --both exclude each other')
  if (both && removes) throw new UsageError('--delete needs a side that wins: it goes with --pull or alone')
  return pull ? 'pull' : both ? 'both' : 'push'
}

/** A line for each path on standard output; that both sides agree, on standard error. */
async function tell(plan: Plan, isFirst: boolean, { isJson, once }: { isJson: boolean; once: boolean }): Promise<void> {
  const lines = [
    ...plan.removeThere.map((path) => ['removed there', path]),
    ...plan.removeHere.map((path) => ['removed here', path]),
    ...plan.send.map((path) => ['sent', path]),
    ...plan.receive.map((path) => ['received', path]),
  ].map(([action = '', path = '']) => ({ action, path: Buffer.from(path, 'latin1').toString() }))
  if (isJson) for (const line of lines) await writeJson(line)
  else if (isFirst && lines.length > linesMax) await writeLine(summaryOf(plan))
  else
    for (const { action, path } of lines)
      await writeLine(`${action}  ${printable(path).replaceAll('\n', String.raw`\n`)}`)
  if (isFirst) note(once ? 'in step' : 'in step; Ctrl-C ends it')
}

function summaryOf({ send, receive, removeThere, removeHere }: Plan): string {
  const removed = removeThere.length + removeHere.length
  return `files and folders: ${send.length} sent, ${receive.length} received, ${removed} removed`
}
