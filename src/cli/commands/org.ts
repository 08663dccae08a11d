import { setTimeout as sleep } from 'node:timers/promises'
import type { Command } from 'commander'
import { type Atoll, NotFoundError, type OrganisationInfo } from '../../../sdk/src/index.ts'
import { UsageError } from '../exit-codes.ts'
import { writeFields } from '../fields.ts'
import { type ListFlags, writeList } from '../list.ts'
import { examples } from '../options.ts'
import { operatorClient, organisationId } from '../organisation.ts'
import { note, when, writeJson, writeLine } from '../output.ts'
import type { Flags } from '../settings.ts'

interface LimitFlags extends Flags {
  name?: string
  limit?: string[]
}

const pollMs = 500
const limitHelp = 'a limit as NAME=NUMBER, or NAME=default, such as runningSandboxesMax=20'

export function addOrg(program: Command): void {
  const org = program
    .command('org')
    .description("organisations of the installation, with the operator's key (ATOLL_OPERATOR_KEY)")
    .addHelpText('after', examples('atoll org create "Team Reef" --limit runningSandboxesMax=20', 'atoll org ls'))
  org
    .command('create')
    .description('make an organisation and print its id')
    .addHelpText('after', examples('atoll org create "Team Reef"', 'atoll key create --org "Team Reef"'))
    .argument('<name>')
    .option('--limit <name=number...>', limitHelp)
    .action(async (name: string, _options: LimitFlags, command: Command) => {
      const flags = command.optsWithGlobals<LimitFlags>()
      const client = await operatorClient(flags)
      const created = await client.organisations.create({ name, limits: limitsOf(flags.limit) })
      if (flags.json) await writeJson(created)
      else await writeLine(created.id)
    })
  org
    .command('ls')
    .description('list organisations')
    .addHelpText('after', examples('atoll org ls'))
    .option('-q, --quiet', 'print ids alone')
    .action(async (_options: ListFlags, command: Command) => {
      const flags = command.optsWithGlobals<ListFlags>()
      const client = await operatorClient(flags)
      await writeList(await Array.fromAsync(client.organisations.list()), flags, {
        ID: (one) => one.id,
        NAME: (one) => one.name,
        STATUS: (one) => one.status,
        CREATED: (one) => when(one.createdAt),
      })
    })
  const ofOne = (
    name: string,
    description: string,
    act: (client: Atoll, id: string, flags: Flags) => Promise<OrganisationInfo>,
  ) =>
    org
      .command(name)
      .description(description)
      .addHelpText('after', examples(`atoll org ${name} "Team Reef"`))
      .argument('<organisation>', 'its id or name')
      .action(async (given: string, _options: Flags, command: Command) => {
        const flags = command.optsWithGlobals<Flags>()
        const client = await operatorClient(flags)
        const {
          limits: _limits,
          effectiveLimits,
          ...info
        } = await act(client, await organisationId(client, given), flags)
        await writeFields({ ...info, limits: effectiveLimits }, flags)
      })
  ofOne('get', 'print what is known of an organisation', (client, id) => client.organisations.get(id))
  ofOne('suspend', 'refuse its calls and hibernate what runs', (client, id, flags: Flags & { reason?: string }) =>
    client.organisations.suspend(id, { reason: flags.reason }),
  ).option('--reason <text>', 'told to those whose calls are refused')
  ofOne('resume', 'end its suspension', (client, id) => client.organisations.resume(id))
  ofOne('set', 'change its name and limits', (client, id, flags: LimitFlags) =>
    client.organisations.update(id, { name: flags.name, limits: limitsOf(flags.limit) }),
  )
    .option('--name <text>', 'another name')
    .option('--limit <name=number...>', limitHelp)
  org
    .command('rm')
    .description('delete an organisation with all that it has, and wait until it is gone')
    .addHelpText('after', examples('atoll org rm "Team Reef" --yes'))
    .argument('<organisation>', 'its id or name')
    .option('--yes', 'that is meant: its sandboxes, volumes and images are gone for good')
    .action(async (given: string, _options: Flags, command: Command) => {
      const { yes, ...flags } = command.optsWithGlobals<Flags & { yes?: boolean }>()
      if (!yes) throw new UsageError('this removes all that the organisation has: add --yes if that is meant')
      const client = await operatorClient(flags)
      const id = await organisationId(client, given)
      await client.organisations.delete(id)
      await untilGone(client, id)
      note(`${id} is gone`)
    })
}

async function untilGone(client: Atoll, id: string): Promise<void> {
  for (;;) {
    try {
      await client.organisations.get(id)
    } catch (error) {
      if (error instanceof NotFoundError) return
      throw error
    }
    await sleep(pollMs)
  }
}

/** The server checks names and bounds. */
function limitsOf(given: readonly string[] | undefined): Record<string, number | null> | undefined {
  if (given === undefined) return undefined
  return Object.fromEntries(
    given.map((text) => {
      const [, name = '', value = ''] = /^([A-Za-z]+)=(default|none|\d+(?:\.\d+)?)$/.exec(text) ?? []
      if (name === '') throw new UsageError(`--limit ${JSON.stringify(text)} must be NAME=NUMBER or NAME=default`)
      return [name, /^\d/.test(value) ? Number(value) : null]
    }),
  )
}
