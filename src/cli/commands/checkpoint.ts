import { Option, type Command } from 'commander'
import { Sandbox, type CheckpointKind, type ListedCheckpointInfo } from '../../../sdk/src/index.ts'
import { chosen, each, type AllFlags } from '../each.ts'
import { type ListFlags, writeList } from '../list.ts'
import { checkedId, checkpointPath, examples, wholeNumber } from '../options.ts'
import { writeFields } from '../fields.ts'
import { hint, when, writeJson, writeLine } from '../output.ts'
import { waiting } from '../progress.ts'
import { clientOf, type Flags } from '../settings.ts'
import { sizeText } from '../units.ts'

const owners = ['client', 'image', 'session', 'wake'] as const
const origins = ['client', 'image', 'fork', 'wake', 'turn'] as const

interface CreateOptions extends Flags {
  name?: string
  kind?: CheckpointKind
  keep?: number
  expiresIn?: number
  list?: boolean
}

interface ListOptions extends ListFlags {
  owner?: (typeof owners)[number]
  origin?: (typeof origins)[number]
}

export function addCheckpoint(program: Command): void {
  const checkpoint = program
    .command('checkpoint')
    .description('kept moments of sandboxes; "atoll checkpoint SANDBOX" is "atoll checkpoint create SANDBOX"')
    .addHelpText(
      'after',
      examples('atoll checkpoint web --name prepared', 'atoll checkpoint ls', 'atoll fork web/prepared'),
    )
  addCreate(checkpoint)
  addList(checkpoint)
  checkpoint
    .command('get')
    .description('print what is known of a checkpoint')
    .addHelpText('after', examples('atoll checkpoint get web/prepared'))
    .argument('<checkpoint>')
    .action(async (id: string, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const info = await (await clientOf(flags)).json<ListedCheckpointInfo>('GET', checkpointPath(id))
      await writeFields(info, flags)
    })
  checkpoint
    .command('expire')
    .description('have a checkpoint deleted by itself; 0: never')
    .addHelpText('after', examples('atoll checkpoint expire web/prepared 86400'))
    .argument('<checkpoint>')
    .argument('<seconds>', 'from now on', wholeNumber)
    .action(async (id: string, seconds: number, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const json = { expiresInSeconds: seconds === 0 ? null : seconds }
      const call = { json, repeat: 'always' } as const
      const info = await (await clientOf(flags)).json<ListedCheckpointInfo>('PATCH', checkpointPath(id), call)
      if (flags.json) await writeJson(info)
    })
  checkpoint
    .command('rm')
    .description('delete checkpoints; what was started from them stays')
    .addHelpText('after', examples('atoll checkpoint rm web/prepared cp-0123456789abcdef'))
    .argument('[checkpoint...]', 'an id, or SANDBOX/NAME')
    .option('--all', 'every checkpoint that a client has made')
    .option('--yes', 'confirms --all')
    .action(async (ids: string[], _options: AllFlags, command: Command) => {
      const flags = command.optsWithGlobals<AllFlags>()
      const client = await clientOf(flags)
      const listed = async () => (await Array.fromAsync(client.checkpoints({ owner: 'client' }))).map(({ id }) => id)
      const paths = (await chosen(ids, flags, 'checkpoint', listed)).map((id) => checkpointPath(id))
      await each(paths, flags, (path) => client.json('DELETE', path))
    })
}

/** The default of the group, so that a sandbox may follow it at once. One that is named like a command is reached by `create`. */
function addCreate(checkpoint: Command): void {
  checkpoint
    .command('create', { isDefault: true })
    .description('keep this moment of a sandbox, its disk and memory, and print the id')
    .addHelpText('after', examples('atoll checkpoint create web --name prepared'))
    .argument('<sandbox>')
    .option('--name <name>', 'how it is called: then SANDBOX/NAME serves as its id')
    .addOption(new Option('--kind <kind>', 'with memory or without (default: full)').choices(['full', 'disk_only']))
    .option('--keep <count>', 'delete the oldest beyond so many', wholeNumber)
    .option('--expires-in <seconds>', 'delete it by itself (default: never)', wholeNumber)
    .addOption(new Option('-l, --list', 'list those of the sandbox instead').hideHelp())
    .action(async (id: string, _options: CreateOptions, command: Command) => {
      const { list, name, kind, keep, expiresIn: expiresInSeconds, ...flags } = command.optsWithGlobals<CreateOptions>()
      const client = await clientOf(flags)
      if (list) return await writeAll(client.checkpoints({ sandbox: checkedId(id, 'sb-', 'sandbox') }), flags)
      const sandbox = await Sandbox.connect(checkedId(id, 'sb-', 'sandbox'), { client })
      const made = await waiting('the moment is kept', sandbox.checkpoint({ name, kind, keep, expiresInSeconds }))
      if (flags.json) return await writeJson(made.info)
      await writeLine(made.id)
      hint(`atoll fork ${made.id}`)
    })
}

function addList(checkpoint: Command): void {
  checkpoint
    .command('ls')
    .description('list checkpoints, newest first: of the whole organisation, or of one sandbox')
    .addHelpText(
      'after',
      examples('atoll checkpoint ls', 'atoll checkpoint ls web', 'atoll checkpoint ls -q --owner client'),
    )
    .argument('[sandbox]')
    .addOption(new Option('--owner <owner>', 'only those made for it').choices(owners))
    .addOption(new Option('--origin <origin>', 'only those of it (default: all but those of turns)').choices(origins))
    .option('-q, --quiet', 'print ids alone')
    .action(async (id: string | undefined, _options: ListOptions, command: Command) => {
      const { owner, origin, ...flags } = command.optsWithGlobals<ListOptions>()
      const sandbox = id === undefined ? undefined : checkedId(id, 'sb-', 'sandbox')
      await writeAll((await clientOf(flags)).checkpoints({ sandbox, owner, origin }), flags)
    })
}

async function writeAll(all: AsyncIterable<ListedCheckpointInfo>, flags: ListFlags): Promise<void> {
  await writeList(await Array.fromAsync(all), flags, {
    ID: (info) => info.id,
    NAME: (info) => `${info.sandboxName ?? info.sandboxId}/${info.name}`,
    KIND: (info) => info.kind,
    STATUS: (info) => info.status,
    SIZE: (info) => sizeText(info.sizeBytes),
    CREATED: (info) => when(info.createdAt),
    EXPIRES: (info) => when(info.expiresAt),
    OWNER: (info) => info.owner,
    'USED BY': dependentsText,
  })
}

const nouns = { sandboxes: 'sandbox', sessions: 'session', images: 'image', checkpoints: 'checkpoint' } as const

/** `2 sandboxes, 1 image`. */
function dependentsText({ dependents }: ListedCheckpointInfo): string {
  return Object.entries(nouns)
    .map(([several, one]) => [dependents[several as keyof typeof nouns], several, one] as const)
    .filter(([count]) => count > 0)
    .map(([count, several, one]) => `${count} ${count === 1 ? one : several}`)
    .join(', ')
}
