import { type Command, Option } from 'commander'
import type { Session } from '../../../sdk/src/index.ts'
import { writeList, type ListFlags } from '../list.ts'
import { examples, lifetime, list, wholeNumber } from '../options.ts'
import { note, when, writeJson, writeLine } from '../output.ts'
import type { Flags } from '../settings.ts'
import { connect } from './requests.ts'

interface ShareFlags extends Flags {
  event?: number
  scope: 'read' | 'fork'
  expires?: number
}

interface CapsulesFlags extends ListFlags {
  revoke?: string[]
}

/** Moments of sessions that others may see. */
export function addSharing(session: Command): void {
  session
    .command('share')
    .description('print a link that shows a session up to now, or up to an event, to whoever has it')
    .addHelpText(
      'after',
      examples('atoll session share reefs', 'atoll session share reefs --event 42 --scope fork --expires 12h'),
    )
    .argument('<session>')
    .option('--event <number>', 'the newest event that it shows (default: the newest of the session)', wholeNumber)
    .addOption(
      new Option('--scope <scope>', 'fork: a key of the organisation also begins sessions from the disk of that moment')
        .choices(['read', 'fork'])
        .default('read'),
    )
    .option('--expires <time>', 'when the link stops working, such as 90s, 30m, 12h or 7d (default: 7d)', lifetime)
    .action(async (id: string, _options: ShareFlags, command: Command) => {
      const { event: eventId, scope, expires: expiresInSeconds, ...flags } = command.optsWithGlobals<ShareFlags>()
      const known = await connect(id, flags)
      const made = await known.capsules.create({ scope, eventId, expiresInSeconds })
      if (flags.json) return await writeJson(made)
      await writeLine(made.url)
      note(`· capsule ${made.id}, until ${when(made.expiresAt)}; it shows events up to ${made.event}`)
      if (made.exact === false) note('· no checkpoint of that moment is kept: forks begin from an earlier one')
    })
  session
    .command('capsules')
    .description('list the links of a session that work, or revoke some')
    .addHelpText(
      'after',
      examples('atoll session capsules reefs', 'atoll session capsules reefs --revoke mom_0123456789abcdef'),
    )
    .argument('<session>')
    .option('--revoke <id>', 'end one; may be given more than once', list)
    .option('-q, --quiet', 'print ids alone')
    .action(async (id: string, _options: CapsulesFlags, command: Command) => {
      const { revoke, ...flags } = command.optsWithGlobals<CapsulesFlags>()
      const known = await connect(id, flags)
      if (revoke !== undefined) return await revokeAll(known, revoke)
      await writeList(await known.capsules.list(), flags, {
        ID: (capsule) => capsule.id,
        SCOPE: (capsule) => capsule.scope,
        EVENT: (capsule) => capsule.event,
        FORKS: (capsule) => capsule.forks,
        CREATED: (capsule) => when(capsule.createdAt),
        EXPIRES: (capsule) => when(capsule.expiresAt),
        REASON: (capsule) => capsule.reason,
      })
    })
}

async function revokeAll({ capsules }: Session, ids: readonly string[]): Promise<void> {
  for (const id of ids) await capsules.revoke(id)
}
