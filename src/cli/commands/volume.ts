import type { Command } from 'commander'
import { each } from '../each.ts'
import { writeFields } from '../fields.ts'
import { type ListFlags, writeList } from '../list.ts'
import { examples, wholeNumber } from '../options.ts'
import { hint, when, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

interface CreateOptions extends Flags {
  size?: number
  from?: string
}

interface SnapshotOptions extends Flags {
  list?: boolean
  delete?: boolean
}

export function addVolume(program: Command): void {
  const volume = program.command('volume').description('folders that outlive sandboxes')
  volume
    .command('create')
    .description('make a volume, empty or a clone, and print its name')
    .addHelpText('after', examples('atoll volume create data --size 1024'))
    .argument('<name>')
    .option('--size <MB>', 'what it may hold (default: 10240, or that of its source)', wholeNumber)
    .option('--from <source>', 'the volume, or VOLUME@SNAPSHOT, that it begins as')
    .action(async (name: string, _options: CreateOptions, command: Command) => {
      const { size: sizeMB, from, ...flags } = command.optsWithGlobals<CreateOptions>()
      const made = await (await clientOf(flags)).volumes.create(name, { sizeMB, from })
      if (flags.json) return await writeJson(made)
      await writeLine(made.name)
      hint(`atoll create --volume ${made.name}:/data`)
    })
  volume
    .command('ls')
    .description('list volumes')
    .addHelpText('after', examples('atoll volume ls'))
    .option('-q, --quiet', 'print names alone')
    .action(async (_options: ListFlags, command: Command) => {
      const flags = command.optsWithGlobals<ListFlags>()
      const volumes = await (await clientOf(flags)).volumes.list()
      await writeList(volumes, flags, {
        NAME: (one) => one.name,
        SIZE: (one) => `${one.sizeMB} MB`,
        FROM: (one) => one.from,
        CREATED: (one) => when(one.createdAt),
      })
    })
  volume
    .command('get')
    .description('print what is known of a volume, and who has it')
    .addHelpText('after', examples('atoll volume get data'))
    .argument('<name>')
    .action(async (name: string, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      await writeFields(await (await clientOf(flags)).volumes.get(name), flags)
    })
  volume
    .command('rm')
    .description('delete volumes with all that they hold')
    .addHelpText('after', examples('atoll volume rm data'))
    .argument('<name...>')
    .action(async (names: string[], _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const { volumes } = await clientOf(flags)
      await each(names, flags, (name) => volumes.delete(name))
    })
  volume
    .command('snapshot')
    .description('freeze a volume as it is now, under a name')
    .addHelpText('after', examples('atoll volume snapshot data before'))
    .argument('<volume>')
    .argument('[name]', 'how it is called')
    .option('-l, --list', 'list the snapshots of the volume instead')
    .option('--delete', 'delete the snapshot of this name instead')
    .action(async (name: string, snapshot: string | undefined, _options: SnapshotOptions, command: Command) => {
      const { list, delete: isDeleted, ...flags } = command.optsWithGlobals<SnapshotOptions>()
      const { volumes } = await clientOf(flags)
      if (list) {
        return await writeList(await volumes.snapshots(name), flags, {
          NAME: (one) => one.name,
          SIZE: (one) => `${one.sizeMB} MB`,
          CREATED: (one) => when(one.createdAt),
        })
      }
      if (snapshot === undefined) command.error("error: missing required argument 'name'")
      if (isDeleted) return await volumes.deleteSnapshot(name, snapshot)
      const made = await volumes.snapshot(name, snapshot)
      if (flags.json) return await writeJson(made)
      await writeLine(`${name}@${made.name}`)
      hint(`atoll volume create copy --from ${name}@${made.name}`)
    })
}
