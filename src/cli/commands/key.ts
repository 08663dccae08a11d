import { type Command, InvalidArgumentError } from 'commander'
import type { Keys } from '../../../sdk/src/index.ts'
import { scopes } from '../../protocol/organisation.ts'
import { each } from '../each.ts'
import { UsageError } from '../exit-codes.ts'
import { type ListFlags, writeList } from '../list.ts'
import { examples } from '../options.ts'
import { organisationKeys } from '../organisation.ts'
import { note, when, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'

interface OrganisationFlags {
  org?: string
}

interface CreateFlags extends Flags, OrganisationFlags {
  name?: string
  scope?: string[]
  expires?: number
  namePrefix?: string
  sandboxesMax?: number
}

const unitSeconds: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 }

export function addKey(program: Command): void {
  const key = program
    .command('key')
    .description('make, list and end API keys')
    .addHelpText(
      'after',
      examples('atoll key create --name ci --scope sandbox:read --scope sandbox:write --expires 90d', 'atoll key ls'),
    )
  key
    .command('create')
    .description('make a key and print its secret, which is shown this once')
    .addHelpText('after', examples('atoll key create --name ci --name-prefix ci- --sandboxes-max 10'))
    .option('--name <text>', 'for people')
    .option('--scope <scope...>', `what it may do, of ${scopes.join(', ')}; default: all`)
    .option('--expires <time>', 'when it ends, such as 12h or 90d from now; default: never', secondsOf)
    .option('--name-prefix <prefix>', 'it sees and makes only what has a name that begins so')
    .option('--sandboxes-max <number>', 'sandboxes of it that are not stopped', wholeNumber)
    .option('--org <organisation>', "of this organisation, by id or name, with the operator's key")
    .action(async (_options: CreateFlags, command: Command) => {
      const flags = command.optsWithGlobals<CreateFlags>()
      const { name, scope, expires, namePrefix, sandboxesMax } = flags
      const expiresAt = expires === undefined ? undefined : new Date(Date.now() + expires * 1000).toISOString()
      const keys = await keysOf(flags)
      const created = await keys.create({ name, scopes: scope?.map(scopeOf), expiresAt, namePrefix, sandboxesMax })
      if (flags.json) return await writeJson(created)
      await writeLine(created.key)
      note(`its id is ${created.id}; the secret is shown this once`)
    })
  key
    .command('ls')
    .description('list keys, newest first')
    .addHelpText('after', examples('atoll key ls'))
    .option('--org <organisation>', "of this organisation, by id or name, with the operator's key")
    .option('-q, --quiet', 'print ids alone')
    .action(async (_options: ListFlags & OrganisationFlags, command: Command) => {
      const flags = command.optsWithGlobals<ListFlags & OrganisationFlags>()
      await writeList(await (await keysOf(flags)).list(), flags, {
        ID: (one) => one.id,
        NAME: (one) => one.name,
        KEY: (one) => one.keyPrefix && `${one.keyPrefix}…`,
        SCOPES: (one) => one.scopes?.join(' ') ?? 'all',
        'NAME PREFIX': (one) => one.namePrefix,
        'LAST USED': (one) => when(one.lastUsedAt),
        EXPIRES: (one) => when(one.expiresAt),
      })
    })
  key
    .command('rm')
    .description('end keys with those that they have made; what is open with them is cut off')
    .addHelpText('after', examples('atoll key rm key_6m1x8c3z7q2k9w4f'))
    .argument('<id...>')
    .option('--org <organisation>', "of this organisation, by id or name, with the operator's key")
    .action(async (ids: string[], _options: Flags & OrganisationFlags, command: Command) => {
      const flags = command.optsWithGlobals<Flags & OrganisationFlags>()
      const keys = await keysOf(flags)
      await each(ids, flags, (id) => keys.delete(id))
    })
}

async function keysOf(flags: Flags & OrganisationFlags): Promise<Keys> {
  return flags.org === undefined ? (await clientOf(flags)).keys : await organisationKeys(flags.org, flags)
}

function scopeOf(text: string): (typeof scopes)[number] {
  const scope = scopes.find((known) => known === text)
  if (scope === undefined)
    throw new UsageError(`there is no scope ${JSON.stringify(text)}; there are ${scopes.join(', ')}`)
  return scope
}

function secondsOf(text: string): number {
  const [, number, unit = ''] = /^(\d{1,6})([smhd])$/.exec(text) ?? []
  if (number === undefined) throw new InvalidArgumentError('must be a number with s, m, h or d behind it, such as 90d')
  return Number(number) * (unitSeconds[unit] ?? 1)
}

function wholeNumber(text: string): number {
  if (!/^\d{1,7}$/.test(text)) throw new InvalidArgumentError('must be a whole number')
  return Number(text)
}
