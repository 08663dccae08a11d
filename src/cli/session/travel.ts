import { type Command, Option } from 'commander'
import {
  errorIn,
  type ForkedSessions,
  type RewoundInfo,
  type SessionInfo,
  type TimelinePage,
  withMessage,
} from '../../../sdk/src/index.ts'
import { forkOf } from '../../../sdk/src/session-travel.ts'
import { type NamedPlace, placeNamed, placeRule } from '../../lib/session-place.ts'
import { canAsk, confirmed } from '../confirm.ts'
import { exitCodes, UsageError } from '../exit-codes.ts'
import { checkedId, examples, list, wholeNumber } from '../options.ts'
import { hasColors, hint, note, printable, writeJson, writeLine } from '../output.ts'
import { waiting } from '../progress.ts'
import { clientOf, type Flags } from '../settings.ts'
import { connect, post, writeMade } from './requests.ts'
import { previewText, processesWords } from './rewind-text.ts'
import { timelineText } from './timeline-text.ts'

const turnsDefault = 50
const pageMax = 100

interface TimelineFlags extends Flags {
  all?: boolean
  limit: number
}

interface ForkFlags extends Flags {
  name?: string
  at?: NamedPlace
  count?: number
  message?: string[]
}

interface RewindFlags extends Flags {
  preview?: boolean
  what: 'all' | 'machine' | 'conversation'
  yes?: boolean
}

/** Forth and back in the turns of a session. */
export function addTravelling(session: Command): void {
  session
    .command('timeline')
    .description('draw the turns of a session, with their checkpoints, what they changed and used, and forks')
    .addHelpText(
      'after',
      `${examples('atoll session timeline reefs', 'atoll session timeline reefs --all')}\n\n◆ has a checkpoint of disk and memory, ◇ of the disk alone, · none. The number is that of an event, for rewind and fork --at.`,
    )
    .argument('<session>')
    .option('--all', 'also turns that a rewind has left')
    .option('--limit <count>', 'how many of the newest', wholeNumber, turnsDefault)
    .action(async (id: string, _options: TimelineFlags, command: Command) => {
      const flags = command.optsWithGlobals<TimelineFlags>()
      const timeline = await readTimeline(id, flags)
      if (flags.json) return await writeJson(timeline)
      await writeTimeline(id, timeline)
    })
  session
    .command('fork')
    .description('start sessions that go on from here, or from an earlier place, and print their ids')
    .addHelpText(
      'after',
      examples(
        'atoll session fork reefs --name reefs-2',
        'atoll session fork reefs --at 42 --count 3',
        "atoll session fork reefs --message 'Make it blue' --message 'Make it green'",
      ),
    )
    .argument('<session>')
    .option('--name <name>', 'of the new one')
    .option('--at <place>', 'a message, a checkpoint or the number of an event (default: now)', checkedPlace)
    .option('--count <count>', 'how many', wholeNumber)
    .option('--message <text>', 'sent to a fork; given more than once, each is for a fork of its own', list)
    .action(async (id: string, _options: ForkFlags, command: Command) => {
      const { name, at, count, message: messages, ...flags } = command.optsWithGlobals<ForkFlags>()
      if (count !== undefined && messages !== undefined && messages.length !== count)
        throw new UsageError(`--count is ${count}, and there are ${messages.length} of --message`)
      const variants = messages?.map((message) => ({ message }))
      const made = post<SessionInfo | ForkedSessions>(await clientOf(flags), id, 'fork', {
        ...forkOf({ name, at, count, variants }),
      })
      await writeForks(await waiting('the session is forked', made), flags)
    })
  session
    .command('rewind')
    .description('take a session back, or forward, to the end of a turn; it can be undone')
    .addHelpText(
      'after',
      examples('atoll session rewind reefs 42 --preview', 'atoll session rewind reefs msg_0123456789abcdef --yes'),
    )
    .argument('<session>')
    .argument('<to>', 'a message (the end of its turn), a checkpoint, or the number of an event')
    .option('--preview', 'print what would change, and change nothing')
    .addOption(
      new Option('--what <what>', 'what is put back: files and processes, what was said, or both')
        .choices(['all', 'machine', 'conversation'])
        .default('all'),
    )
    .option('--yes', 'do not ask')
    .action(async (id: string, to: string, _options: RewindFlags, command: Command) => {
      const { preview: isPreview = false, what, yes = false, ...flags } = command.optsWithGlobals<RewindFlags>()
      const asked = { to: checkedPlace(to), what }
      const known = await connect(id, flags)
      const isAsked = !yes && !flags.json && canAsk()
      if (isPreview || isAsked) {
        const preview = await known.previewRewind(asked)
        if (isPreview && flags.json) return await writeJson(preview)
        const { isTTY: isTerminal, columns } = process.stdout
        const shown = previewText(preview, isTerminal ? { widthMax: columns || 80, hasColors: hasColors() } : {})
        if (isPreview) return await writeLine(shown)
        process.stderr.write(`${shown}\n`)
        if (!(await confirmed('Rewind?'))) {
          note('nothing has changed')
          process.exitCode = exitCodes.failed
          return
        }
      }
      await writeRewound(await waiting('the session is rewound', known.rewind(asked)), id, flags)
    })
  session
    .command('undo')
    .description('undo the newest rewind or adoption of a session, or its undo')
    .addHelpText('after', examples('atoll session undo reefs'))
    .argument('<session>')
    .action(async (id: string, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const known = await connect(id, flags)
      await writeRewound(await waiting('the rewind is undone', known.undo()), id, flags)
    })
  session
    .command('adopt')
    .description('take a session to where a fork of it stands; the other forks are archived')
    .addHelpText('after', examples('atoll session adopt reefs reefs-2'))
    .argument('<session>')
    .argument('<fork>', 'its id or name, see "atoll session timeline"')
    .action(async (id: string, fork: string, _options: Flags, command: Command) => {
      const flags = command.optsWithGlobals<Flags>()
      const known = await connect(id, flags)
      const from = await connect(fork, flags)
      await writeRewound(await waiting('the fork is adopted', known.adopt(from)), id, flags)
    })
}

function checkedPlace(text: string): NamedPlace {
  const place = placeNamed(text)
  if (place === undefined) throw new UsageError(`${JSON.stringify(text)} ${placeRule}`)
  return place
}

/** The newest turns, as one page. */
async function readTimeline(id: string, { all = false, limit, ...flags }: TimelineFlags): Promise<TimelinePage> {
  const path = `/v1/sessions/${checkedId(id, 'session_', 'session')}/timeline`
  const client = await clientOf(flags)
  const whole: TimelinePage = { turns: [], nextCursor: null, undoCheckpointId: null }
  do {
    const left = Math.min(pageMax, Math.max(1, limit - whole.turns.length))
    const query = { limit: left, cursor: whole.nextCursor ?? undefined, branch: all ? 'all' : undefined }
    const page = await client.json<TimelinePage>('GET', path, { query })
    whole.turns.push(...page.turns)
    whole.nextCursor = page.nextCursor
    whole.undoCheckpointId ??= page.undoCheckpointId
  } while (whole.nextCursor !== null && whole.turns.length < limit)
  return whole
}

async function writeTimeline(id: string, { turns, nextCursor, undoCheckpointId }: TimelinePage): Promise<void> {
  const { isTTY: isTerminal, columns } = process.stdout
  if (turns.length === 0) return hint('no turn has begun yet')
  await writeLine(
    timelineText(turns, isTerminal ? { widthMax: columns || 80, hasColors: hasColors() } : { isExact: true }),
  )
  if (nextCursor !== null) note(`these are the newest ${turns.length} turns; --limit prints more`)
  const targets = turns.filter(({ lastEvent, checkpoint, left }) => lastEvent !== null && checkpoint !== null && !left)
  const target = targets[1] ?? targets[0]
  if (undoCheckpointId !== null) hint(`atoll session undo ${id} undoes the newest rewind`)
  else if (target !== undefined) hint(`atoll session rewind ${id} ${target.lastEvent} goes back to the end of a turn`)
}

async function writeForks(answer: SessionInfo | ForkedSessions, flags: Flags): Promise<void> {
  if (!('sessions' in answer)) {
    await writeMade(answer, flags)
    return tellBegin(answer)
  }
  const { sessions } = answer
  if (flags.json) await writeJson(answer)
  for (const one of sessions) if (!flags.json && 'id' in one) await writeLine(one.id)
  const made = sessions.filter((one) => 'id' in one)
  if (made[0] !== undefined) tellBegin(made[0])
  const failed = sessions.find((one) => 'error' in one)
  if (failed === undefined) return
  throw withMessage(errorIn(failed), (reason) => `${made.length} of ${sessions.length} sessions were forked: ${reason}`)
}

/** No checkpoint of the very place may be kept. */
function tellBegin({ fork }: SessionInfo): void {
  if (fork?.exact === false)
    note(`· no checkpoint of event ${fork.atEvent} is kept: it begins after event ${fork.afterEvent}`)
}

async function writeRewound(told: RewoundInfo, id: string, flags: Flags): Promise<void> {
  if (flags.json) return await writeJson(told)
  const { restoredPrompt, processes } = told
  if (restoredPrompt !== null) {
    hint('the first message that was left, to be edited and sent again:')
    await writeLine(printable(restoredPrompt))
  }
  note(`· processes: ${processesWords[processes]}`)
  note(`· to undo this: atoll session undo ${id}`)
}
