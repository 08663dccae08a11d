import { type Command, InvalidArgumentError, Option } from 'commander'
import type { EgressEntryInfo, EgressPolicy, EgressRule } from '../../../sdk/src/index.ts'
import { rule, rules } from '../egress/flags.ts'
import { entryLine, writeEgress, writePolicy } from '../egress/print.ts'
import { exitCodes } from '../exit-codes.ts'
import { examples, wholeNumber } from '../options.ts'
import { note, writeJson, writeLine } from '../output.ts'
import { clientOf, sandboxOf, type Flags } from '../settings.ts'

interface PolicyFlags extends Flags {
  mode: 'none' | 'list' | 'all'
  allow?: EgressRule[]
  deny?: EgressRule[]
  logOnly?: boolean
}

interface LogFlags extends Flags {
  follow?: boolean
  denied?: boolean
  decision?: EgressEntryInfo['decision']
  after?: number | 'newest'
}

const pageLimit = 1000
const ruleHelp = 'a host name, *.name, *, an IPv4 address or block, with :port if wanted; or a rule of the API as JSON'

export function addEgress(program: Command): void {
  const egress = program
    .command('egress')
    .description('what sandboxes may reach, and what they have asked for outside')
    .addHelpText(
      'after',
      examples(
        "atoll egress set web --mode list --allow registry.npmjs.org --allow '*.github.com:443'",
        'atoll egress log web --follow --denied',
      ),
    )
  egress
    .command('get')
    .description('print what a sandbox may reach, and which secrets it uses')
    .addHelpText('after', examples('atoll egress show web'))
    .argument('<sandbox>')
    .action(async (id: string, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      await writeEgress(await (await sandboxOf(id, flags)).egress.get(), flags)
    })
  for (const [verb, description, example] of [
    ['allow', 'add rules that let pass to the list of a sandbox', "'*.npmjs.org:443'"],
    ['deny', 'add rules that deny, whatever else is allowed', 'gist.github.com'],
  ] as const) {
    egress
      .command(verb)
      .description(`${description}; in force at once, for open connections too`)
      .addHelpText('after', examples(`atoll egress ${verb} web ${example}`))
      .argument('<sandbox>')
      .argument('<rule...>', ruleHelp)
      .action(async (id: string, given: string[], _options: Flags, command: Command) => {
        const flags = command.optsWithGlobals<Flags>()
        const info = await (await sandboxOf(id, flags)).egress[verb](...given.map(rule))
        if (flags.json) await writeJson(info)
      })
  }
  withPolicyFlags(egress.command('set'))
    .description('replace the policy of a sandbox; in force at once, for open connections too')
    .addHelpText(
      'after',
      examples(
        'atoll egress set web --mode list --allow api.github.com --deny gist.github.com',
        `atoll egress set web --mode list --allow '{"host":"api.github.com","methods":["GET"]}' --log-only`,
        'atoll egress set web --mode all',
      ),
    )
    .argument('<sandbox>')
    .action(async (id: string, _options: PolicyFlags, command: Command) => {
      const flags = command.optsWithGlobals<PolicyFlags>()
      const info = await (await sandboxOf(id, flags)).egress.set(policyOf(flags))
      if (flags.json) await writeJson(info)
    })
  egress
    .command('log')
    .description('print what a sandbox has asked for outside, the oldest that is kept first')
    .addHelpText('after', examples('atoll egress log web', 'atoll egress log web --follow --denied'))
    .argument('<sandbox>')
    .option('-f, --follow', 'go on with what comes')
    .option('--denied', 'only what was refused')
    .addOption(
      new Option('--decision <decision>', 'only these')
        .choices(['allowed', 'denied', 'would_deny', 'failed'])
        .conflicts('denied'),
    )
    .option('--after <number>', 'begin after this entry; "newest": with the last ones, or with what comes', position)
    .action(async (id: string, _options: LogFlags, command: Command) => {
      const flags = command.optsWithGlobals<LogFlags>()
      for await (const entry of entriesOf(id, flags)) {
        if (flags.json) await writeJson(entry)
        else await writeLine(entryLine(entry))
      }
    })
  addOrganisation(egress)
}

function addOrganisation(egress: Command): void {
  const organisation = egress
    .command('org')
    .description('what every sandbox of the organisation is held to besides, whatever its creation says')
    .addHelpText('after', examples('atoll egress org', 'atoll egress org set --mode all --deny paste.example'))
  organisation
    .command('get', { isDefault: true })
    .description('print the policy of the organisation')
    .addHelpText('after', examples('atoll egress org show'))
    .action(async (_options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      await writePolicy(await (await clientOf(flags)).egress.get(), flags)
    })
  const change = (verb: string, policy: (flags: PolicyFlags) => EgressPolicy | null) =>
    organisation.command(verb).action(async (_options: PolicyFlags, command: Command) => {
      const flags = command.optsWithGlobals<PolicyFlags>()
      const { egress: ofAll } = await clientOf(flags)
      const wanted = policy(flags)
      const changed = await (wanted === null ? ofAll.clear() : ofAll.set(wanted))
      if (flags.json) await writeJson(changed)
      else note(`running sandboxes for which it holds now: ${changed.refreshed}`)
      for (const { sandboxId, error } of changed.failures) note(`${sandboxId} goes on as before: ${error}`)
      if (changed.failures.length > 0) process.exitCode = exitCodes.failed
    })
  withPolicyFlags(change('set', policyOf))
    .description('replace it; in force at once, for what runs and open connections too')
    .addHelpText('after', examples('atoll egress org set --mode all --deny paste.example'))
  change('clear', () => null)
    .description('take it away')
    .addHelpText('after', examples('atoll egress org clear'))
}

function withPolicyFlags(command: Command): Command {
  return command
    .addOption(
      new Option('--mode <mode>', 'none: nothing; list: what --allow names; all: everything')
        .choices(['none', 'list', 'all'])
        .makeOptionMandatory(),
    )
    .option('--allow <rule>', `${ruleHelp}; may be repeated`, rules)
    .option('--deny <rule>', 'the same, not to be reached whatever is allowed; may be repeated', rules)
    .option('--log-only', 'record what would be refused, and let it pass')
}

function policyOf({ mode, allow, deny, logOnly }: PolicyFlags): EgressPolicy {
  return { mode, allow, deny, logOnly }
}

async function* entriesOf(id: string, flags: LogFlags): AsyncGenerator<EgressEntryInfo> {
  const { egress } = await sandboxOf(id, flags)
  const decision = flags.denied ? 'denied' : flags.decision
  if (flags.follow) return yield* egress.follow({ after: flags.after, decision })
  if (flags.after === 'newest') return yield* await egress.log({ after: 'newest', decision })
  for (let after = flags.after ?? 0; ;) {
    const page = await egress.log({ after, limit: pageLimit, decision })
    yield* page
    const last = page.at(-1)
    if (last === undefined || page.length < pageLimit) return
    after = last.number
  }
}

function position(text: string): number | 'newest' {
  if (text === 'newest') return text
  try {
    return wholeNumber(text)
  } catch {
    throw new InvalidArgumentError('It must be a whole number or "newest".')
  }
}
