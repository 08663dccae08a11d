import { type Command, InvalidArgumentError, Option } from 'commander'
import type { ForkEstimate, SessionComparison, SessionInfo, TurnUsage } from '../../../sdk/src/index.ts'
import { writePatch, writeStat } from '../diff-output.ts'
import { UsageError } from '../exit-codes.ts'
import { writeFields } from '../fields.ts'
import { examples, wholeNumber } from '../options.ts'
import { columns, writeJson, writeLine } from '../output.ts'
import { clientOf, type Flags } from '../settings.ts'
import { costText, durationText, tokenText } from '../units.ts'
import { connect, sessionPath } from './requests.ts'

interface DiffFlags extends Flags {
  stat?: boolean
}

interface EstimateFlags extends Flags {
  fork?: number
}

interface SetFlags extends Flags {
  maxCostUsd?: number
  maxTokens?: number
  checkpoints?: 'turn' | 'disk' | 'none'
}

/** What sessions have come to, what forks would take, and their bounds. */
export function addComparing(session: Command): void {
  session
    .command('diff')
    .description('print how the working folder of a session differs from that of another one, or from an earlier state')
    .addHelpText(
      'after',
      examples('atoll session diff reefs reefs-2 --stat', 'atoll session diff reefs cp-0123456789abcdef >turn.diff'),
    )
    .argument('<session>')
    .argument('<against>', 'a session, a checkpoint, or a message of the session: the end of its turn')
    .option('--stat', 'print the files and how many lines of them, and what both have taken')
    .action(async (id: string, against: string, _options: DiffFlags, command: Command) => {
      const { stat: isStat = false, ...flags } = command.optsWithGlobals<DiffFlags>()
      if (isStat && flags.json === true) throw new UsageError('--stat and --json exclude each other')
      const known = await connect(id, flags)
      if (flags.json === true) return await writeJson(await known.diff(against))
      if (!isStat) return await writePatch(await known.patchStream(against))
      const compared = await known.diff(against)
      await writeStat(compared)
      await writeBoth(compared, id)
    })
  session
    .command('estimate')
    .description('print what forks of a session would take')
    .addHelpText('after', examples('atoll session estimate reefs --fork 5'))
    .argument('<session>')
    .option('--fork <count>', 'how many forks (default: 1)', wholeNumber)
    .action(async (id: string, _options: EstimateFlags, command: Command) => {
      const { fork, ...flags } = command.optsWithGlobals<EstimateFlags>()
      const path = `${sessionPath(id)}/estimate`
      const estimate = await (await clientOf(flags)).json<ForkEstimate>('GET', path, { query: { fork } })
      const { fork: forks, memoryBytes, tokensPerTurn, ...rest } = estimate
      const { now: memoryNowBytes, max: memoryMaxBytes } = memoryBytes
      const flat = { forks, memoryNowBytes, memoryMaxBytes, ...rest, tokensPerTurn }
      await writeFields(flags.json ? estimate : flat, flags)
    })
  session
    .command('set')
    .description('change bounds of a session; one that is paused for its budget goes on')
    .addHelpText(
      'after',
      examples('atoll session set reefs --max-cost-usd 5', 'atoll session set reefs --checkpoints disk'),
    )
    .argument('<session>')
    .option('--max-cost-usd <amount>', 'most US dollars of the session', dollars)
    .option('--max-tokens <count>', 'most tokens of the session', wholeNumber)
    .addOption(
      new Option('--checkpoints <what>', 'what is kept after each turn: disk and memory, the disk, or nothing').choices(
        ['turn', 'disk', 'none'],
      ),
    )
    .action(async (id: string, _options: SetFlags, command: Command) => {
      const { maxCostUsd, maxTokens, checkpoints, ...flags } = command.optsWithGlobals<SetFlags>()
      if (maxCostUsd === undefined && maxTokens === undefined && checkpoints === undefined)
        throw new UsageError('give --max-cost-usd, --max-tokens or --checkpoints')
      const known = await connect(id, flags)
      const info: SessionInfo = await known.update({ maxCostUsd, maxTokens, checkpoints })
      if (flags.json) await writeJson(info)
    })
}

function dollars(text: string): number {
  if (!/^\d{1,9}(\.\d{1,9})?$/.test(text) || Number(text) === 0)
    throw new InvalidArgumentError('It must be a number above 0, such as 2.5.')
  return Number(text)
}

/** What both sides have taken, where the other one is a session or a turn. */
async function writeBoth({ usage, durationMs, preview, against }: SessionComparison, id: string): Promise<void> {
  if (usage.against === null) return
  const tokens = (used: TurnUsage) => tokenText(used.inputTokens + used.outputTokens)
  const cost = (used: TurnUsage) => (used.totalCostUsd === undefined ? undefined : costText(used.totalCostUsd))
  const time = (ms: number | null) => (ms === null ? undefined : durationText(ms / 1000))
  const rows = [
    [id, tokens(usage.this), cost(usage.this), time(durationMs.this), preview.this.state],
    [against.id, tokens(usage.against), cost(usage.against), time(durationMs.against), preview.against?.state],
  ]
  await writeLine(columns(['SESSION', 'TOKENS', 'COST', 'TIME', 'PREVIEW'], rows))
}
