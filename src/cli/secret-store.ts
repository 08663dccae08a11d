import type { Command } from 'commander'
import type { Atoll } from '../../sdk/src/index.ts'
import { each } from './each.ts'
import { UsageError } from './exit-codes.ts'
import { writeFields } from './fields.ts'
import { type ListFlags, writeList } from './list.ts'
import { examples } from './options.ts'
import { when, writeJson, writeLine } from './output.ts'
import { clientOf, type Flags } from './settings.ts'

interface CreateFlags extends Flags {
  allow?: string[]
  default?: boolean
}

interface SetFlags extends Flags {
  name?: string
  default?: boolean
}

interface AllowFlags extends Flags {
  rm?: string[]
  any?: boolean
}

/** The id of a store that is given by id or name. */
export async function storeId(client: Atoll, given: string): Promise<string> {
  if (/^ss-[a-z0-9]{16}$/.test(given)) return given
  return (await client.secrets.storeNamed(given)).id
}

/** `atoll secret store`. */
export function storeCommands(secret: Command): void {
  const store = secret
    .command('store')
    .description('named sets of secrets')
    .addHelpText('after', examples('atoll secret store create production', 'atoll secret store ls'))
  store
    .command('create')
    .description('make a store and print its id')
    .addHelpText('after', examples("atoll secret store create production --allow api.github.com '*.npmjs.org'"))
    .argument('<name>')
    .option('--allow <host...>', 'sandboxes with the store reach nothing else: a host name, *.name or *')
    .option('--default', 'every sandbox of the organisation has it')
    .action(async (name: string, _options: CreateFlags, command: Command) => {
      const flags = command.optsWithGlobals<CreateFlags>()
      const { allow: egressAllowlist, default: isDefault } = flags
      const made = await (await clientOf(flags)).secrets.createStore({ name, egressAllowlist, isDefault })
      if (flags.json) await writeJson(made)
      else await writeLine(made.id)
    })
  store
    .command('ls')
    .description('list stores')
    .addHelpText('after', examples('atoll secret store ls'))
    .option('-q, --quiet', 'print names alone')
    .action(async (_options: ListFlags, command: Command) => {
      const flags = command.optsWithGlobals<ListFlags>()
      await writeList(await (await clientOf(flags)).secrets.listStores(), flags, {
        NAME: (one) => one.name,
        ID: (one) => one.id,
        FOR: (one) => (one.isDefault ? 'all sandboxes' : 'those that name it'),
        HOSTS: (one) => one.egressAllowlist.join(' ') || 'any',
        CHANGED: (one) => when(one.updatedAt),
      })
    })
  store
    .command('get')
    .description('print what is known of a store, with the names of its secrets')
    .addHelpText('after', examples('atoll secret store get production'))
    .argument('<store>', 'its name or id')
    .action(async (given: string, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const { secrets } = await clientOf(flags)
      const id = await storeId(await clientOf(flags), given)
      const [info, own] = await Promise.all([secrets.getStore(id), secrets.list(id)])
      await writeFields({ ...info, secrets: own.map(({ name }) => name) }, flags)
    })
  store
    .command('set')
    .description('change the name of a store, and whether every sandbox has it')
    .addHelpText('after', examples('atoll secret store set production --default'))
    .argument('<store>', 'its name or id')
    .option('--name <name>', 'another name: sandboxes are given stores by name')
    .option('--default', 'every sandbox of the organisation has it')
    .option('--no-default', 'only sandboxes that name it have it')
    .action(async (given: string, _options: SetFlags, command: Command) => {
      const flags = command.optsWithGlobals<SetFlags>()
      const { name, default: isDefault } = flags
      if (name === undefined && isDefault === undefined)
        throw new UsageError('give --name NAME, --default or --no-default')
      const client = await clientOf(flags)
      await writeFields(await client.secrets.updateStore(await storeId(client, given), { name, isDefault }), flags)
    })
  store
    .command('allow')
    .description('add hosts that sandboxes with the store reach, or take some away; prints those that are left')
    .addHelpText(
      'after',
      examples('atoll secret store allow production api.github.com', 'atoll secret store allow production --any'),
    )
    .argument('<store>', 'its name or id')
    .argument('[host...]', 'a host name, *.name or *')
    .option('--rm <host...>', 'take these away')
    .option('--any', 'no restriction any more')
    .action(async (given: string, hosts: string[], _options: AllowFlags, command: Command) => {
      const flags = command.optsWithGlobals<AllowFlags>()
      const { rm: removed = [], any = false } = flags
      if (any && hosts.length + removed.length > 0) throw new UsageError('--any goes without hosts')
      const client = await clientOf(flags)
      const id = await storeId(client, given)
      const { egressAllowlist: before } = await client.secrets.getStore(id)
      const kept = any ? [] : [...before, ...hosts].filter((host) => !removed.includes(host))
      // An empty list is no restriction.
      if (!any && removed.length > 0 && kept.length === 0)
        throw new UsageError('no host would be left, which restricts nothing: say --any if that is meant')
      const isChanged = any || hosts.length + removed.length > 0
      const info = isChanged
        ? await client.secrets.updateStore(id, { egressAllowlist: kept })
        : { egressAllowlist: before }
      if (flags.json) await writeJson(info)
      else for (const host of info.egressAllowlist) await writeLine(host)
    })
  store
    .command('rm')
    .description('delete stores with their secrets, which sandboxes that run lose')
    .addHelpText('after', examples('atoll secret store rm production --yes'))
    .argument('<store...>', 'names or ids')
    .option('--yes', 'that is meant: the values are gone for good')
    .action(async (given: string[], _options: Flags, command: Command) => {
      const { yes, ...flags } = command.optsWithGlobals<Flags & { yes?: boolean }>()
      if (!yes) throw new UsageError('the values of its secrets are gone for good: add --yes if that is meant')
      const client = await clientOf(flags)
      await each(given, flags, async (one) => client.secrets.deleteStore(await storeId(client, one)))
    })
}
